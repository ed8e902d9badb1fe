//! Whether this processor offers what the job may have used: the platform section of the image.
//!
//! # What callers may rely on
//! A job that may have seen an instruction, a register or a layout which this processor does not have is not
//! started. `wayfarer restart` looks at the whole machine before; `./IMAGE` only here.

use crate::image::Image;
use crate::report::{self, Outcome, failure};
use core::fmt;
use loader::layout::SectionKind;
use loader::processor::{Lacking, Processor, component_name, requested};

/// Names of features that fit a line of text.
const MOST_NAMES: usize = 12;

/// Refuses a processor that lacks something, or with `degraded` says what it lacks of that which the job was
/// asked not to use. `buffer` must have room for the section.
pub fn check(
    image: &Image,
    processor: &Processor,
    degraded: bool,
    buffer: &mut [u8],
) -> Outcome<()> {
    let kind = SectionKind::Platform;
    image.read_section(kind, buffer)?;
    let used = image.header.section(kind).used as usize;
    let text = core::str::from_utf8(&buffer[..used])
        .map_err(|_| failure!(Image, "section {}: not a text", kind.name()))?;
    let (mut all, mut fatal) = (0, 0);
    let mut count = |what: Lacking<'_>| {
        all += 1;
        fatal += u32::from(!what.is_beyond_a_request());
    };
    processor.lacking(text, &mut count).map_err(|word| {
        let name = kind.name();
        failure!(Image, "section {name}: unknown word {:?}", word.0)
    })?;
    if all == 0 {
        return Ok(());
    }
    let lacks = Lacks { processor, text };
    let request = requested(text).filter(|level| processor.offers(*level) && fatal == 0);
    match request {
        None => Err(failure!(Image, "may not restart on this machine: {lacks}")),
        Some(_) if degraded => {
            report::say(image.path(), format_args!("goes on without: {lacks}"));
            Ok(())
        }
        Some(level) => Err(failure!(
            Image,
            "may not restart on this machine without --degraded (it was asked, not made, to be content with {}): {lacks}",
            level.name()
        )),
    }
}

/// What is lacking, as a text.
struct Lacks<'a> {
    processor: &'a Processor,
    text: &'a str,
}

impl fmt::Display for Lacks<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut features = 0;
        let mut result = Ok(());
        let mut between = "";
        let told = self.processor.lacking(self.text, &mut |what| {
            if let Lacking::Feature(_) = what {
                features += 1;
                if features > MOST_NAMES {
                    return;
                }
            }
            let written = match what {
                Lacking::Feature(name) if features == 1 => write!(to, "processor features {name}"),
                Lacking::Feature(name) => write!(to, ", {name}"),
                Lacking::State(bit) => write!(to, "{between}register state {}", Component(bit)),
                Lacking::Room(bit) => write!(
                    to,
                    "{between}register state {} that the job's dynamic linker has no room for (start such jobs with \
                     LD_BIND_NOW=1)",
                    Component(bit)
                ),
                Lacking::Layout { component, needed, found } => write!(
                    to,
                    "{between}register state {} lies at offset {found} on this processor, expected {needed}",
                    Component(component)
                ),
                Lacking::SignalFrame { room, frame } => write!(
                    to,
                    "{between}a signal frame takes {frame} bytes, the job's alternate signal stacks have room for {room}"
                ),
            };
            between = "; ";
            result = result.and(written);
        });
        told.map_err(|_| fmt::Error)?;
        if features > MOST_NAMES {
            write!(to, "; {} more processor features", features - MOST_NAMES)?;
        }
        result
    }
}

/// A register state component.
struct Component(u32);

impl fmt::Display for Component {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match component_name(self.0) {
            Some(name) => to.write_str(name),
            None => write!(to, "component-{}", self.0),
        }
    }
}
