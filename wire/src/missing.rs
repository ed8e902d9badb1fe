//! What goes with ENOENT: a folder on the way that is there, and which names it does not have, so that the next question about one of
//! these need not be asked.
//!
//! ```text
//! [bytes of the name up to that folder u16][256 words]      little endian
//! ```
//! The words are a Bloom filter: three bits for each name. A name without all of its bits is not there; one with them may be.

use crate::WireError;

/// Words of a filter.
pub const FILTER_WORDS: usize = 256;
/// Names that a filter is made of at most: then it is wrong about one name in six.
pub const MOST_NAMES: usize = 4096;
/// Bytes of all.
pub const MISSING_LEN: usize = 2 + 8 * FILTER_WORDS;

/// Which names a folder does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names(pub [u64; FILTER_WORDS]);

/// The words of a name's bits, and the bits in them.
pub fn bits(name: &[u8]) -> [(usize, u64); 3] {
    // FNV-1a, and a multiplication that mixes what is left in the upper bits.
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [20, 35, 50].map(|shift| {
        let bit = (hash >> shift) as usize % (FILTER_WORDS * 64);
        (bit / 64, 1 << (bit % 64))
    })
}

impl Default for Names {
    fn default() -> Self {
        Names([0; FILTER_WORDS])
    }
}

impl Names {
    /// The folder has this name.
    pub fn insert(&mut self, name: &[u8]) {
        for (word, bit) in bits(name) {
            self.0[word] |= bit;
        }
    }

    /// The folder has no such name, for certain.
    #[must_use]
    pub fn lacks(&self, name: &[u8]) -> bool {
        bits(name)
            .into_iter()
            .any(|(word, bit)| self.0[word] & bit == 0)
    }
}

/// What goes with ENOENT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// How many bytes of the name that was asked about lead to the folder; 0: to the root, or to where a relative name begins.
    pub folder: u16,
    /// What the folder does not have.
    pub names: Names,
}

impl Missing {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; MISSING_LEN] {
        let mut bytes = [0; MISSING_LEN];
        bytes[..2].copy_from_slice(&self.folder.to_le_bytes());
        for (place, word) in bytes[2..].chunks_exact_mut(8).zip(self.names.0) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The parts of the data of an answer, without a copy: where the folder's name ends, and the words.
    ///
    /// # Errors
    /// As [`Missing::decode`].
    pub fn split(data: &[u8]) -> Result<(u16, impl Iterator<Item = u64>), WireError> {
        let (folder, words) = data.split_first_chunk::<2>().ok_or(WireError::Entries)?;
        if data.len() != MISSING_LEN {
            return Err(WireError::Entries);
        }
        let words = words.as_chunks::<8>().0.iter();
        let words = words.map(|word| u64::from_le_bytes(*word));
        Ok((u16::from_le_bytes(*folder), words))
    }

    /// From the data of an answer.
    ///
    /// # Errors
    /// [`WireError::Entries`]: it has another length.
    pub fn decode(data: &[u8]) -> Result<Self, WireError> {
        let (folder, words) = Missing::split(data)?;
        let mut names = Names::default();
        for (place, word) in names.0.iter_mut().zip(words) {
            *place = word;
        }
        Ok(Missing { folder, names })
    }
}

/// The names on the way to `name`, each with how many bytes lead to the folder that it is in: up to the first that is not plain (empty, a
/// dot, two dots, or longer than a name can be).
pub fn steps(name: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    const LONGEST: usize = 255;
    let mut begin = usize::from(name.first() == Some(&b'/'));
    let mut folder = 0;
    core::iter::from_fn(move || {
        let rest = name.get(begin..)?;
        let len = rest.iter().position(|byte| *byte == b'/');
        let step = &rest[..len.unwrap_or(rest.len())];
        if matches!(step, b"" | b"." | b"..") || step.len() > LONGEST {
            return None;
        }
        let found = (folder, step);
        folder = begin + step.len();
        begin = folder + 1;
        Some(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_that_is_there_is_never_missing(names in prop::collection::vec(prop::collection::vec(1u8..=255, 1..40), 1..300)) {
            let mut missing = Missing { folder: 7, names: Names::default() };
            names.iter().for_each(|name| missing.names.insert(name));
            let read = Missing::decode(&missing.encode()).expect("reads back");
            prop_assert_eq!(read, missing);
            for name in &names {
                prop_assert!(!read.names.lacks(name));
            }
        }

        #[test]
        fn any_bytes_are_read_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(Missing::decode(&bytes).is_ok(), bytes.len() == MISSING_LEN);
        }

        #[test]
        fn steps_lead_through_a_name(name in "/?[a-c./]{0,30}") {
            let mut last = 0;
            for (folder, step) in steps(name.as_bytes()) {
                prop_assert!(folder >= last && !step.is_empty());
                let at = folder + usize::from(folder > 0 || name.starts_with('/'));
                prop_assert_eq!(&name.as_bytes()[at..at + step.len()], step);
                last = folder;
            }
        }
    }

    #[test]
    fn most_names_that_are_not_there_are_missing() {
        for (count, most_wrong) in [(1500, 4), (MOST_NAMES, 20)] {
            let mut names = Names::default();
            (0..count).for_each(|number| names.insert(format!("name-{number}.h").as_bytes()));
            let asked = (0..1000).map(|number| format!("other_{number}.so"));
            let wrong = asked.filter(|name| !names.lacks(name.as_bytes())).count();
            assert!(
                wrong * 100 <= most_wrong * 1000,
                "{wrong} of 1000 with {count}"
            );
        }
    }

    #[test]
    fn steps_end_where_a_name_is_not_plain() {
        let of = |name: &'static str| {
            let found: Vec<_> = steps(name.as_bytes()).collect();
            found
                .into_iter()
                .map(|(folder, step)| (folder, String::from_utf8_lossy(step).into_owned()))
                .collect::<Vec<_>>()
        };
        let step = |folder: usize, name: &str| (folder, name.to_owned());
        assert_eq!(
            of("/usr/bin/x"),
            [step(0, "usr"), step(4, "bin"), step(8, "x")]
        );
        assert_eq!(of("a/b"), [step(0, "a"), step(1, "b")]);
        assert_eq!(of("/a/../b"), [step(0, "a")]);
        assert_eq!(of("/a//b"), [step(0, "a")]);
        assert_eq!(of("a/"), [step(0, "a")]);
        assert_eq!(of("./a"), []);
        assert_eq!(of("/"), []);
        assert_eq!(of(""), []);
    }
}
