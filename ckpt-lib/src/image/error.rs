//! What can be wrong with an image, or with writing one.

use crate::shown::shown;
use loader::layout::{FORMAT_VERSION, Hash, LayoutError, SectionKind, Space};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why an image could not be written, opened or believed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// A file operation failed.
    #[error("image {image}: cannot {what}", image = shown(.image))]
    Io {
        /// The file.
        image: PathBuf,
        /// What was being done.
        what: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// There is one of that name already.
    #[error("image {image} exists already", image = shown(.image))]
    Exists {
        /// The file.
        image: PathBuf,
    },
    /// It has got larger than it may.
    #[error("image {image} would have more than {most} bytes, expected that at most", image = shown(.image))]
    TooLarge {
        /// The file.
        image: PathBuf,
        /// How many bytes it may have.
        most: u64,
    },
    /// Not a regular file.
    #[error("image {image} is {found}, expected a regular file", image = shown(.image))]
    NotAFile {
        /// The file.
        image: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// Somebody else owns it, or others may write it.
    #[error("image {image}: {found}, expected {expected}", image = shown(.image))]
    Untrusted {
        /// The file.
        image: PathBuf,
        /// Owner or mode found.
        found: String,
        /// Owner or mode expected.
        expected: String,
    },
    /// Bytes that make no sense although no checksum says so, or that are under none.
    #[error("image {image}: {section} is damaged: {what}", image = shown(.image))]
    Layout {
        /// The file.
        image: PathBuf,
        /// Which section.
        section: &'static str,
        /// What is wrong, and where in the section.
        what: String,
    },
    /// Longer or shorter than it says.
    #[error("image {image} is {found} bytes long, expected {expected}: it ends {place}", image = shown(.image))]
    Length {
        /// The file.
        image: PathBuf,
        /// Its length.
        found: u64,
        /// The length its header gives, or the least that has a header.
        expected: u64,
        /// In which section it ends, or that it is longer than they are.
        place: String,
    },
    /// A format this program does not read.
    #[error("image {image}: .wf.header: it is of format version {found}, expected {expected}", image = shown(.image))]
    Version {
        /// The file.
        image: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        expected: u32,
    },
    /// A section's checksum does not match its bytes.
    #[error(
        "image {image}: {section} is damaged in its {len} bytes from byte {at} of the file on (blake3 {found}, expected {expected})",
        image = shown(.image)
    )]
    DamagedSection {
        /// The file.
        image: PathBuf,
        /// Which section.
        section: &'static str,
        /// Where it begins in the file.
        at: u64,
        /// Its length, bytes.
        len: u64,
        /// Checksum of its bytes.
        found: HexHash,
        /// Checksum in the header.
        expected: HexHash,
    },
    /// A chunk's checksum does not match its bytes.
    #[error(
        "image {image}: .wf.pages chunk {chunk} is damaged (checksum {found}, expected {expected})", image = shown(.image))]
    DamagedChunk {
        /// The file that was opened; the chunk may lie in a base.
        image: PathBuf,
        /// Index in its chunk table.
        chunk: u64,
        /// Checksum of its bytes.
        found: HexHash,
        /// Checksum in the table.
        expected: HexHash,
    },
    /// A section is longer than a reader is willing to believe.
    #[error("image {image}: {section} is {found} bytes long, expected {limit} at most", image = shown(.image))]
    TooLong {
        /// The file.
        image: PathBuf,
        /// Which section.
        section: &'static str,
        /// Its length.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// An earlier image that this one takes contents from cannot be used.
    #[error("image {image}: its base {base} cannot be used", image = shown(.image), base = shown(.base))]
    Base {
        /// The file.
        image: PathBuf,
        /// The base.
        base: PathBuf,
        /// Why not.
        #[source]
        source: Box<ImageError>,
    },
    /// Another image stands under the name of an earlier one.
    #[error("image {image} has the id {found}, expected {expected}", image = shown(.image))]
    Id {
        /// The file.
        image: PathBuf,
        /// Its id.
        found: HexHash,
        /// The id of the image that should be there.
        expected: HexHash,
    },
    /// The snapshot cannot be read, or makes no sense.
    #[error("image {image}: .wf.meta cannot be read: {what}", image = shown(.image))]
    Meta {
        /// The file.
        image: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// What is to be stored could not be read.
    #[error("{len} bytes at {at:#x} of {space} cannot be read")]
    Source {
        /// Process or inode.
        space: SpaceName,
        /// Address or offset.
        at: u64,
        /// How many.
        len: u64,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Of what is to be stored nobody knows which bytes there are.
    #[error("which bytes of {space} are to be stored from {at:#x} on cannot be found out")]
    Ranges {
        /// Process or inode.
        space: SpaceName,
        /// Address or offset.
        at: u64,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// What the writer was given does not make an image.
    #[error("image {image} cannot be written: {what}", image = shown(.image))]
    Unwritable {
        /// The file.
        image: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// The first bytes of a checksum, as hex.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HexHash(pub Hash);

impl fmt::Display for HexHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for HexHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A space, as people see it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpaceName(pub Space);

impl fmt::Display for SpaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Space::Process(index) => write!(f, "the memory of process no. {index} of the job"),
            Space::Inode(index) => write!(f, "inode {index}"),
        }
    }
}

impl fmt::Debug for SpaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl ImageError {
    /// From a layout error of this section.
    pub(super) fn layout(image: &Path, section: SectionKind, error: LayoutError) -> Self {
        let what = match error {
            LayoutError::Version { found } => {
                return ImageError::Version {
                    image: image.to_owned(),
                    found,
                    expected: FORMAT_VERSION,
                };
            }
            LayoutError::Short { found, expected } => {
                format!("{found} bytes found, {expected} expected")
            }
            LayoutError::Magic => "the magic is not there; not an image".to_owned(),
            LayoutError::HeaderHash => "its own checksum does not match".to_owned(),
            LayoutError::Sections { index } => {
                let name = SectionKind::ALL.get(index as usize);
                let name = name.map_or("the last section", |kind| kind.name());
                format!("{name} is not where it belongs")
            }
            LayoutError::TooLong { kind, found, limit } => {
                return ImageError::TooLong {
                    image: image.to_owned(),
                    section: kind.name(),
                    found,
                    limit,
                };
            }
            LayoutError::Table(error) => error.to_string(),
        };
        Self::wrong(image, section, what)
    }

    /// Bytes of this section that make no sense.
    pub(super) fn wrong(image: &Path, section: SectionKind, what: impl Into<String>) -> Self {
        ImageError::Layout {
            image: image.to_owned(),
            section: section.name(),
            what: what.into(),
        }
    }

    pub(super) fn io(image: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let image = image.to_owned();
        move |source| ImageError::Io {
            image,
            what,
            source,
        }
    }
}

/// An error and its causes in one line.
pub(super) fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
