//! LZFoo decompression (encodings.md); `wire/lzfoo_decoder.py`.

use pyo3::exceptions::{PyAssertionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::guard::guarded;
use crate::hashing::unlocked;
use crate::varu64::from_digits;

const STEP_BYTES_MAX: usize = 65536;
/// Old output is dropped in bulk, once this much of it has left the window.
const SLACK_BYTES: usize = 4 * STEP_BYTES_MAX;

/// An element that is not legal: where it begins in the packet, and what is wrong with it.
#[derive(Clone)]
struct Fault {
    position: u64,
    detail: String,
}

/// What the head of an element says.
struct Head {
    is_copy: bool,
    length: u64,
    /// Of a copy.
    offset: u64,
    /// Of the byte behind the head.
    after: usize,
}

/// Begun elements, of which bytes are to come.
#[derive(Clone, Copy, PartialEq)]
enum Begun {
    Nothing,
    Literal { left: u64 },
    Copy { left: u64, offset: usize },
}

/// Equals `PythonLZFooDecoder`; `error` makes the exception of a position and a text.
#[pyclass]
pub struct LZFooDecoder {
    error: Py<PyAny>,
    core: Core,
}

struct Core {
    window: u64,
    /// At least the last `window` bytes of all output.
    out: Vec<u8>,
    out_left: u64,
    /// Not fed yet.
    compressed_left: u64,
    input: Vec<u8>,
    /// Position of `input[0]` in the packet.
    input_start: u64,
    pos: usize,
    begun: Begun,
    fault: Option<Fault>,
}

#[pymethods]
impl LZFooDecoder {
    #[new]
    fn new(window: u64, error: Py<PyAny>) -> Self {
        let core = Core {
            window,
            out: Vec::new(),
            out_left: 0,
            compressed_left: 0,
            input: Vec::new(),
            input_start: 0,
            pos: 0,
            begun: Begun::Nothing,
            fault: None,
        };
        LZFooDecoder { error, core }
    }

    fn start(
        &mut self,
        py: Python<'_>,
        uncompressed_bytes: u64,
        compressed_bytes: u64,
    ) -> PyResult<()> {
        guarded(|| {
            if !self.core.finished() {
                return Err(PyAssertionError::new_err("the packet before is not finished"));
            }
            self.core.start(uncompressed_bytes, compressed_bytes);
            self.raised(py)
        })
    }

    #[getter]
    fn wanted(&self) -> u64 {
        self.core.compressed_left
    }

    #[getter]
    fn finished(&self) -> bool {
        self.core.finished()
    }

    fn feed(&mut self, data: &[u8]) -> PyResult<()> {
        guarded(|| {
            let left = self.core.compressed_left;
            if data.len() as u64 > left {
                let text = format!("{} bytes fed, {left} are left", data.len());
                return Err(PyValueError::new_err(text));
            }
            self.core.feed(data);
            Ok(())
        })
    }

    fn read<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        guarded(|| {
            self.raised(py)?;
            let core = &mut self.core;
            let start = unlocked(py, core.input.len() - core.pos, || core.read());
            if self.core.out.len() == start {
                self.raised(py)?;
            }
            Ok(PyBytes::new(py, &self.core.out[start..]))
        })
    }
}

impl LZFooDecoder {
    /// The exception of a fault, if there was one.
    fn raised(&self, py: Python<'_>) -> PyResult<()> {
        match &self.core.fault {
            None => Ok(()),
            Some(fault) => {
                let error = self.error.bind(py).call1((fault.position, &fault.detail))?;
                Err(PyErr::from_value(error))
            }
        }
    }
}

impl Core {
    fn start(&mut self, uncompressed_bytes: u64, compressed_bytes: u64) {
        if u128::from(compressed_bytes) > 4 * u128::from(uncompressed_bytes) + 64 {
            let detail =
                format!("{compressed_bytes} compressed bytes for {uncompressed_bytes} are refused");
            self.fault = Some(Fault { position: 0, detail });
            return;
        }
        self.out_left = uncompressed_bytes;
        self.compressed_left = compressed_bytes;
        self.input.clear();
        self.input_start = 0;
        self.pos = 0;
    }

    fn finished(&self) -> bool {
        self.out_left == 0 && self.fault.is_none() && self.input_ended()
    }

    fn input_ended(&self) -> bool {
        self.compressed_left == 0 && self.pos == self.input.len()
    }

    fn feed(&mut self, data: &[u8]) {
        self.compressed_left -= data.len() as u64;
        self.input_start += self.pos as u64;
        self.input.drain(..self.pos);
        self.input.extend_from_slice(data);
        self.pos = 0;
    }

    /// One step of output, or a fault; returns where in `out` it begins.
    fn read(&mut self) -> usize {
        let kept = usize::try_from(self.window).unwrap_or(usize::MAX);
        if self.out.len() > kept.saturating_add(SLACK_BYTES) {
            self.out.drain(..self.out.len() - kept);
        }
        let start = self.out.len();
        if let Err(fault) = self.step(start + STEP_BYTES_MAX) {
            self.fault = Some(fault);
        }
        start
    }

    /// Decodes until input, or room for output (up to `out_max`), ends.
    fn step(&mut self, out_max: usize) -> Result<(), Fault> {
        self.go_on(out_max);
        while self.begun == Begun::Nothing && self.out.len() < out_max {
            let Some(head) = self.head()? else { break };
            self.begin(&head)?;
            self.go_on(out_max);
        }
        if self.out_left > 0 && self.begun == Begun::Nothing && self.input_ended() {
            return Err(self.fault_at(self.pos, format!("the output is {} bytes short", self.out_left)));
        }
        Ok(())
    }

    /// The head of the next element; None if it has not come yet.
    ///
    /// literal: 0, length (7 bits) | [1 to 8 bytes of length] | bytes
    /// copy: 1, length (7 bits) | [1 to 8 bytes of length] | V offset
    fn head(&self) -> Result<Option<Head>, Fault> {
        let (input, pos) = (&self.input[..], self.pos);
        let Some(&first) = input.get(pos) else {
            return Ok(None);
        };
        let mut length = u64::from(first & 127);
        let mut after = pos + 1;
        if length >= 120 {
            let Some(digits) = input.get(after..after + (length - 119) as usize) else {
                return self.cut_off();
            };
            length = from_digits(digits);
            after += digits.len();
        }
        if length == 0 {
            return Err(self.fault_at(pos, "an element of length zero".to_owned()));
        }
        if length > self.out_left {
            let text = format!("an element of {length} bytes, {} are left to come", self.out_left);
            return Err(self.fault_at(pos, text));
        }
        if first < 128 {
            return Ok(Some(Head { is_copy: false, length, offset: 0, after }));
        }
        let Some(&first) = input.get(after) else {
            return self.cut_off();
        };
        let mut offset = u64::from(first);
        after += 1;
        if first >= 248 {
            let Some(digits) = input.get(after..after + usize::from(first - 247)) else {
                return self.cut_off();
            };
            offset = from_digits(digits);
            after += digits.len();
        }
        Ok(Some(Head { is_copy: true, length, offset, after }))
    }

    fn cut_off(&self) -> Result<Option<Head>, Fault> {
        if self.compressed_left == 0 {
            return Err(self.fault_at(self.pos, "a truncated element".to_owned()));
        }
        Ok(None)
    }

    /// Takes an element whose head has come, if it is legal.
    fn begin(&mut self, head: &Head) -> Result<(), Fault> {
        let left = head.length;
        if head.is_copy {
            self.begun = Begun::Copy { left, offset: self.legal_offset(head.offset)? };
        } else {
            let to_come = (self.input.len() - head.after) as u64;
            if left > to_come.saturating_add(self.compressed_left) {
                return Err(self.fault_at(self.pos, format!("a truncated literal of {left} bytes")));
            }
            self.begun = Begun::Literal { left };
        }
        self.pos = head.after;
        Ok(())
    }

    fn legal_offset(&self, offset: u64) -> Result<usize, Fault> {
        let detail = if offset == 0 {
            "an offset of zero".to_owned()
        } else if offset > self.window {
            format!("offset {offset} is beyond the window of {}", self.window)
        } else if offset > self.out.len() as u64 {
            format!("offset {offset} is beyond the output of {}", self.out.len())
        } else {
            return Ok(offset as usize);
        };
        Err(self.fault_at(self.pos, detail))
    }

    /// Goes on with the element that was begun, as far as input and room allow.
    fn go_on(&mut self, out_max: usize) {
        let room = out_max - self.out.len();
        let count = match self.begun {
            Begun::Nothing => return,
            Begun::Literal { left } => {
                let count = least(left, room.min(self.input.len() - self.pos));
                self.out.extend_from_slice(&self.input[self.pos..self.pos + count]);
                self.pos += count;
                self.begun = Begun::Literal { left: left - count as u64 };
                count
            }
            Begun::Copy { left, offset } => {
                let count = least(left, room);
                self.copy(count, offset);
                self.begun = Begun::Copy { left: left - count as u64, offset };
                count
            }
        };
        self.out_left -= count as u64;
        if let Begun::Literal { left: 0 } | Begun::Copy { left: 0, .. } = self.begun {
            self.begun = Begun::Nothing;
        }
    }

    /// Repeats `count` bytes of the output, from `offset` before its end on.
    fn copy(&mut self, count: usize, offset: usize) {
        let (start, end) = (self.out.len() - offset, self.out.len() + count);
        // What was copied is copied again: each time twice as much.
        while self.out.len() < end {
            let part = (end - self.out.len()).min(self.out.len() - start);
            self.out.extend_from_within(start..start + part);
        }
    }

    fn fault_at(&self, pos: usize, detail: String) -> Fault {
        Fault { position: self.input_start + pos as u64, detail }
    }
}

fn least(left: u64, room: usize) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(room)
}
