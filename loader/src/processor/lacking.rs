//! The processor's part of a CheckpointPlatform string, against a processor.

use super::{Level, Processor, SAVED_BY_LINKER};

/// Something that an image needs and a processor does not offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacking<'a> {
    /// A feature, by name.
    Feature(&'a str),
    /// An XSAVE component, by bit.
    State(u32),
    /// An XSAVE component that the processor has and the job's dynamic linker has no room for.
    Room(u32),
    /// An XSAVE component lies elsewhere.
    Layout {
        /// Its bit.
        component: u32,
        /// Byte offset in the image.
        needed: u32,
        /// Byte offset here.
        found: u32,
    },
    /// A signal frame does not fit the job's alternate stacks.
    SignalFrame {
        /// Bytes that they have for one.
        room: u64,
        /// Bytes that it takes here.
        frame: u64,
    },
}

impl Lacking<'_> {
    /// Whether a job that was asked to be content with a lesser processor may go on without it.
    #[must_use]
    pub fn is_beyond_a_request(&self) -> bool {
        matches!(self, Lacking::Feature(_) | Lacking::State(_))
    }
}

/// The level that the job was asked to be content with (`baseline=v3,requested`), if it was.
#[must_use]
pub fn requested(platform: &str) -> Option<Level> {
    let mut words = platform.split_ascii_whitespace();
    let value = words.find_map(|word| word.strip_prefix("baseline="))?;
    Level::from_name(value.strip_suffix(",requested")?)
}

/// A word of the string that says nothing that can be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable<'a>(pub &'a str);

impl Processor {
    /// Tells everything that the image with this CheckpointPlatform string misses here. Words about other
    /// things than the processor are passed over.
    ///
    /// # Errors
    /// [`Unreadable`] with the first word that cannot be understood.
    pub fn lacking<'a>(
        &self,
        platform: &'a str,
        tell: &mut dyn FnMut(Lacking<'a>),
    ) -> Result<(), Unreadable<'a>> {
        let mut words = platform.split_ascii_whitespace();
        for expected in ["LINUX", "X86_64"] {
            let word = words.next().unwrap_or("");
            if word != expected {
                return Err(Unreadable(word));
            }
        }
        let level = words.next().unwrap_or("");
        if level != "v0" {
            let known = Level::from_name(level).filter(|known| known.name() == level);
            for name in known.ok_or(Unreadable(level))?.features() {
                self.lacking_feature(name, tell);
            }
        }
        for word in words {
            self.lacking_word(word, tell).ok_or(Unreadable(word))?;
        }
        Ok(())
    }

    /// Whether all features of a level are there.
    #[must_use]
    pub fn offers(&self, level: Level) -> bool {
        level
            .features()
            .all(|name| self.features().any(|offered| offered == name))
    }

    fn lacking_feature<'a>(&self, name: &'a str, tell: &mut dyn FnMut(Lacking<'a>)) {
        if !self.features().any(|offered| offered == name) {
            tell(Lacking::Feature(name));
        }
    }

    /// Judges one word; none if it cannot be read.
    fn lacking_word<'a>(&self, word: &'a str, tell: &mut dyn FnMut(Lacking<'a>)) -> Option<()> {
        if word.starts_with('+') {
            for part in word.split(',') {
                self.lacking_feature(part.strip_prefix('+')?, tell);
            }
            return Some(());
        }
        let (key, value) = word.split_once('=')?;
        match key {
            "xsave" => {
                bits(hexadecimal(value)? & !self.xsave()).for_each(|bit| tell(Lacking::State(bit)))
            }
            "within" => {
                let beyond = self.xsave() & SAVED_BY_LINKER & !hexadecimal(value)?;
                bits(beyond).for_each(|bit| tell(Lacking::Room(bit)));
            }
            "layout" => {
                for part in value.split(',') {
                    let (component, needed) = part.split_once('@')?;
                    let (component, needed) = (component.parse().ok()?, needed.parse().ok()?);
                    let here = self.layout().find(|(bit, _)| *bit == component);
                    if let Some((_, found)) = here.filter(|(_, found)| *found != needed) {
                        tell(Lacking::Layout {
                            component,
                            needed,
                            found,
                        });
                    }
                }
            }
            "sigframe" => {
                let room = value.parse().ok()?;
                if let Some(frame) = self.signal_frame().filter(|frame| *frame > room) {
                    tell(Lacking::SignalFrame { room, frame });
                }
            }
            "page" | "va" | "cpus" | "hard" | "huge" | "maxid" | "baseline" | "kernel" => {}
            _ => return None,
        }
        Some(())
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn bits(mask: u64) -> impl Iterator<Item = u32> {
    (0..64).filter(move |bit| mask >> bit & 1 != 0)
}
