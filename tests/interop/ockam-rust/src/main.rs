//! A node with upstream's bidirectional streams, driven by the tests from outside.
//!
//! `echo HUB CLIENT OUT IN` answers what comes in over IN through OUT, until it is ended.
//! `talk HUB CLIENT OUT IN FIRST COUNT` sends COUNT numbered messages through OUT to the other node's
//! worker `echoer`, all at once, and prints each answer that comes in over IN; it ends with the last.
//! What is printed first, once, is `ready`.

use ockam::stream::Stream;
use ockam::{route, Context, Result, Routed, TcpTransport, Worker, TCP};
use std::io::Write;
use std::time::Duration;

const POLL: Duration = Duration::from_millis(250);

struct Echoer;

#[ockam::worker]
impl Worker for Echoer {
    type Context = Context;
    type Message = String;

    async fn handle_message(&mut self, ctx: &mut Context, message: Routed<String>) -> Result<()> {
        say(&message.as_body().clone());
        ctx.send(message.return_route(), message.body()).await
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("standard output");
}

#[ockam::node]
async fn main(mut ctx: Context) -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, hub, client, outgoing, incoming, rest @ ..] = arguments.as_slice() else {
        eprintln!("echo|talk HUB CLIENT OUT IN [FIRST COUNT]");
        std::process::exit(2);
    };
    let numbers: Vec<usize> = rest.iter().map(|text| text.parse().expect("a number")).collect();

    TcpTransport::create(&ctx).await?;
    if role == "echo" {
        ctx.start_worker("echoer", Echoer).await?;
    }
    let (sender, _receiver) = Stream::new(&ctx)
        .await?
        .client_id(client.as_str())
        .with_interval(POLL)
        .connect(route![(TCP, hub)], outgoing.as_str(), incoming.as_str())
        .await?;
    say("ready");

    let (first, count) = match (role.as_str(), numbers.as_slice()) {
        ("echo", []) => std::future::pending().await,
        ("talk", [first, count]) => (*first, *count),
        _ => panic!("echo takes no numbers, talk takes FIRST and COUNT"),
    };
    for number in first..first + count {
        ctx.send(sender.to_route().append("echoer"), format!("message {number}")).await?;
    }
    for _ in 0..count {
        say(&ctx.receive_timeout::<String>(120).await?.take().body());
    }
    // The consumer saves its place behind what it has delivered: a moment after the last answer.
    ctx.sleep(2 * POLL).await;
    ctx.stop().await
}
