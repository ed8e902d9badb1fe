//! Fault points: what runs beside a job dies on purpose at a named step, so that tests can show that it harms no file.
//!
//! `WAYFARER_FAULT=keeper:NAME:K` kills the keeper at its K-th step of that name, `checkpoint:NAME:K` what makes or fetches an image, `starter:NAME:K` what carries a job's streams, `life:NAME:K` the
//! starter above a job (`any`: of all names).
//!
//! | part | step |
//! |---|---|
//! | checkpoint | `left`: the image counts, and the job is to be killed |
//! | keeper | `held`: it has a buffer; `noted`: which request has it; `answered`: the shadow has it; `sent`: the buffer is clean; `ended`: the job is over; `complete`: all is at the shadow; `durable`: and on its disk, and nobody has been told so |
//! | life | `ended`: the job has ended, which is not written down; `committed`: it is, and nobody has been told so |
//! | starter | `goes`: before something goes along the line; `gone`: behind that; `comes`: before what has come is looked at |

use line::Line;
use shadow::Fatal;
use std::io::{self, Read, Write};

static CHECKPOINT: Fatal = Fatal::of("checkpoint");
static KEEPER: Fatal = Fatal::of("keeper");
static LIFE: Fatal = Fatal::of("life");
static STARTER: Fatal = Fatal::of("starter");

/// A step of a checkpoint's.
pub(crate) fn checkpoint(name: &str) {
    CHECKPOINT.step(name);
}

/// A step of the keeper's.
pub(crate) fn keeper(name: &str) {
    KEEPER.step(name);
}

/// A step of a starter's that keeps a job alive (crate::life).
pub(crate) fn life(name: &str) {
    LIFE.step(name);
}

/// The same line, of a starter.
pub(crate) fn of_starter(line: Line) -> Line {
    let (input, output) = (line.input, line.output);
    Line {
        input: Box::new(Input(input)),
        output: Box::new(Output(output)),
        ..line
    }
}

struct Input(Box<dyn Read + Send>);

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.0.read(buffer)?;
        STARTER.step("comes");
        Ok(len)
    }
}

struct Output(Box<dyn Write + Send>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        STARTER.step("goes");
        let len = self.0.write(bytes)?;
        STARTER.step("gone");
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
