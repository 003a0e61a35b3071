// Two processes replicate a hypercore over loopback TCP, both stores on disk: what bench/suite.py
// measures of bamboo-peer, the same way.
//
//     node yardstick.js ENTRIES BYTES BATCH LIVE PAUSE_MS
//
// One line of JSON: append and replication rate, processor time of both processes for each entry,
// latency of LIVE entries that are appended one by one, PAUSE_MS apart, and peak memory of both.
'use strict'

const Hypercore = require('hypercore')
const { fork } = require('child_process')
const { randomFillSync } = require('crypto')
const fs = require('fs')
const net = require('net')
const os = require('os')
const path = require('path')

const now = () => performance.timeOrigin + performance.now()
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const cpuMicroseconds = () => {
  const { user, system } = process.cpuUsage()
  return user + system
}
const peakMB = () => Math.round(process.resourceUsage().maxRSS / 1024)

function connectStream (socket, core, isInitiator) {
  socket.setNoDelay(true)
  const stream = core.replicate(isInitiator)
  for (const end of [socket, stream]) end.on('error', () => {})
  socket.pipe(stream).pipe(socket)
}

async function serve (folder, entries, size, batch) {
  const core = new Hypercore(folder)
  await core.ready()
  const random = randomFillSync(Buffer.alloc(size))
  let appendSeconds = 0
  for (let first = 0; first < entries; first += batch) {
    const count = Math.min(batch, entries - first)
    const blocks = Array.from({ length: count }, (_, index) => {
      const block = Buffer.from(random)
      block.writeUInt32BE(first + index)
      return block
    })
    const began = now()
    await core.append(blocks)
    appendSeconds += (now() - began) / 1000
  }
  const server = net.createServer((socket) => connectStream(socket, core, false))
  let cpu = 0
  process.on('message', async (message) => {
    if (message.live) {
      for (let i = 0; i < message.live; i++) {
        await core.append(Buffer.from(String(now())))
        await pause(message.pauseMs)
      }
    } else if (message.cpu) {
      process.send({ cpu: cpuMicroseconds() - cpu, peakMB: peakMB() })
    } else {
      process.exit(0)
    }
  })
  server.listen(0, '127.0.0.1', () => {
    cpu = cpuMicroseconds()
    process.send({ port: server.address().port, key: core.key.toString('hex'), appendSeconds })
  })
}

async function measure (entries, size, batch, live, pauseMs) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'yardstick-'))
  const child = fork(__filename, ['serve', path.join(folder, 'a'), entries, size, batch])
  const said = () => new Promise((resolve) => child.once('message', resolve))
  const { port, key, appendSeconds } = await said()
  const core = new Hypercore(path.join(folder, 'b'), Buffer.from(key, 'hex'))
  await core.ready()
  const cpu = cpuMicroseconds()
  const began = now()
  connectStream(net.connect(port, '127.0.0.1'), core, true)
  await core.update({ wait: true })
  await core.download({ start: 0, end: entries }).done()
  const seconds = (now() - began) / 1000
  const ownCpu = cpuMicroseconds() - cpu
  child.send({ cpu: true })
  const theirs = await said()
  const latencies = []
  let next = core.length
  core.download({ start: next, end: -1 })
  child.send({ live, pauseMs })
  while (latencies.length < live) {
    const block = await core.get(next++)
    latencies.push(now() - Number(block.toString()))
  }
  latencies.sort((a, b) => a - b)
  console.log(JSON.stringify({
    append_per_s: entries / appendSeconds,
    replicate_per_s: entries / seconds,
    cpu_us: (ownCpu + theirs.cpu) / entries,
    live_ms_p50: latencies[live >> 1],
    live_ms_p99: latencies[Math.floor(live * 0.99)],
    rss_mb: Math.max(peakMB(), theirs.peakMB)
  }))
  child.send({ end: true })
  fs.rmSync(folder, { recursive: true, force: true })
  process.exit(0)
}

const [first, ...rest] = process.argv.slice(2)
if (first === 'serve') serve(rest[0], ...rest.slice(1).map(Number))
else measure(Number(first), ...rest.map(Number))
