//! What either side says first.
//!
//! ```text
//! shadow  -> starter   magic (8)  version (4)  token (32)  length (4)  environment
//! starter -> shadow    magic (8)  version (4)  length (4)  place
//! ```
//! The place is where a starter that has begun the job itself is found again if the line breaks: a socket's name, or nothing. The starter needs nothing else to know the job's token: whoever has the line is trusted with it.

use std::io::{self, Read, Write};
use wire::Token;

const MAGIC: [u8; 8] = *b"wf-line\0";
const VERSION: u32 = 2;
/// More than Linux gives to a program.
const MOST_ENVIRONMENT: u32 = 8 << 20;
/// More than a name may have.
const MOST_PLACE: u32 = 4096;
/// Instead of the length of an environment: there is none.
const NO_ENVIRONMENT: u32 = u32::MAX;

/// The other side is no wayfarer, or another one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrefaceError {
    /// The line ended, or took too long.
    #[error("the other side has not said who it is")]
    Broken(#[from] io::Error),
    /// Something else speaks.
    #[error("what speaks there is no wayfarer: {found:?}")]
    Stranger {
        /// What came.
        found: String,
    },
    /// Another version.
    #[error("line version {found} is spoken there, {VERSION} here")]
    Version {
        /// What came.
        found: u32,
    },
    /// Too long an environment.
    #[error("an environment of {found} bytes, expected at most {MOST_ENVIRONMENT}")]
    Long {
        /// What came.
        found: u32,
    },
    /// Too long a place.
    #[error("a place of {found} bytes, expected at most {MOST_PLACE}")]
    Place {
        /// What came.
        found: u32,
    },
}

/// What a shadow says first.
#[derive(Clone, PartialEq, Eq)]
pub struct Preface {
    /// The job's.
    pub token: Token,
    /// The job's environment, each entry with a NUL behind it; none: that of the starter.
    pub environment: Option<Vec<u8>>,
}

impl std::fmt::Debug for Preface {
    // Both are secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preface").finish_non_exhaustive()
    }
}

impl Preface {
    /// The shadow's side: sends it, and reads what the starter says: where it is found again, or nothing.
    ///
    /// # Errors
    /// [`PrefaceError`].
    pub fn exchange(
        &self,
        input: &mut dyn Read,
        output: &mut dyn Write,
    ) -> Result<Vec<u8>, PrefaceError> {
        let len = match &self.environment {
            None => NO_ENVIRONMENT,
            Some(block) => u32::try_from(block.len()).unwrap_or(NO_ENVIRONMENT - 1),
        };
        if len != NO_ENVIRONMENT && len > MOST_ENVIRONMENT {
            return Err(PrefaceError::Long { found: len });
        }
        let block = self.environment.as_deref().unwrap_or_default();
        let head: [&[u8]; 5] = [
            &MAGIC,
            &VERSION.to_le_bytes(),
            &self.token,
            &len.to_le_bytes(),
            block,
        ];
        output.write_all(&head.concat())?;
        output.flush()?;
        read_version(input)?;
        match read_number(input)? {
            found if found > MOST_PLACE => Err(PrefaceError::Place { found }),
            len => {
                let mut place = vec![0; len as usize];
                input.read_exact(&mut place)?;
                Ok(place)
            }
        }
    }

    /// The starter's side, first half; the other is [`answer_preface`].
    ///
    /// # Errors
    /// [`PrefaceError`].
    pub fn read(input: &mut dyn Read) -> Result<Self, PrefaceError> {
        read_version(input)?;
        let mut token = [0; 32];
        input.read_exact(&mut token)?;
        let environment = match read_number(input)? {
            NO_ENVIRONMENT => None,
            found @ MOST_ENVIRONMENT.. => return Err(PrefaceError::Long { found }),
            len => {
                let mut block = vec![0; len as usize];
                input.read_exact(&mut block)?;
                Some(block)
            }
        };
        Ok(Preface { token, environment })
    }
}

/// The starter's side, second half; `place` as in the header.
///
/// # Errors
/// As write(2).
pub fn answer_preface(output: &mut dyn Write, place: &[u8]) -> io::Result<()> {
    let len = (place.len() as u32).to_le_bytes();
    output.write_all(&[&MAGIC[..], &VERSION.to_le_bytes(), &len, place].concat())?;
    output.flush()
}

fn read_number(input: &mut dyn Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn read_version(input: &mut dyn Read) -> Result<(), PrefaceError> {
    let mut magic = [0; 8];
    let mut filled = 0;
    while filled < magic.len() {
        match input.read(&mut magic[filled..]) {
            Ok(0) if filled == 0 => {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            // What a login shell says before it ends.
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    if magic != MAGIC {
        let found = String::from_utf8_lossy(&magic[..filled]).into_owned();
        return Err(PrefaceError::Stranger { found });
    }
    match read_number(input)? {
        VERSION => Ok(()),
        found => Err(PrefaceError::Version { found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(preface: &Preface) -> Vec<u8> {
        let mut answer = vec![];
        answer_preface(&mut answer, b"/a place").expect("is written");
        let mut said = vec![];
        let place = preface.exchange(&mut &answer[..], &mut said);
        assert_eq!(place.expect("is understood"), b"/a place");
        said
    }

    #[test]
    fn a_preface_reads_back_with_and_without_an_environment() {
        for environment in [None, Some(vec![]), Some(b"A=1\0B=2\0".to_vec())] {
            let preface = Preface {
                token: [7; 32],
                environment,
            };
            assert_eq!(
                Preface::read(&mut &said(&preface)[..]).expect("sound"),
                preface
            );
        }
    }

    #[test]
    fn whoever_else_speaks_is_quoted() {
        let error = Preface::read(&mut &b"Welcome to host"[..]).expect_err("is none");
        let expected = "what speaks there is no wayfarer: \"Welcome \"";
        assert_eq!(error.to_string(), expected);
        let mut other = said(&Preface {
            token: [7; 32],
            environment: None,
        });
        other[8] = 9;
        let error = Preface::read(&mut &other[..]).expect_err("is another");
        assert_eq!(error.to_string(), "line version 9 is spoken there, 2 here");
        other[8] = 2;
        other[44..48].copy_from_slice(&(MOST_ENVIRONMENT + 1).to_le_bytes());
        assert!(matches!(
            Preface::read(&mut &other[..]),
            Err(PrefaceError::Long { .. })
        ));
        let mut answer = vec![];
        answer_preface(&mut answer, &[b'x'; 5000]).expect("is written");
        let preface = Preface {
            token: [7; 32],
            environment: None,
        };
        assert!(matches!(
            preface.exchange(&mut &answer[..], &mut vec![]),
            Err(PrefaceError::Place { found: 5000 })
        ));
        for len in 0..44 {
            assert!(Preface::read(&mut &other[..len]).is_err(), "{len}");
        }
    }
}
