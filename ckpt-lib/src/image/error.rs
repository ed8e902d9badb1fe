//! What can be wrong with an image, or with writing one.

use loader::layout::{Hash, LayoutError, SectionKind};
use std::io;
use std::path::PathBuf;

/// Why an image could not be written, opened or believed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// A file operation failed.
    #[error("image {image}: cannot {what}")]
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
    #[error("image {image} exists already")]
    Exists {
        /// The file.
        image: PathBuf,
    },
    /// Not a regular file.
    #[error("image {image} is {found}, expected a regular file")]
    NotAFile {
        /// The file.
        image: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// Somebody else owns it, or others may write it.
    #[error("image {image}: {found}, expected {expected}")]
    Untrusted {
        /// The file.
        image: PathBuf,
        /// Owner or mode found.
        found: String,
        /// Owner or mode expected.
        expected: String,
    },
    /// The header or a table does not make sense.
    #[error("image {image}: {section} is damaged: {what}")]
    Layout {
        /// The file.
        image: PathBuf,
        /// Which section.
        section: &'static str,
        /// What is wrong.
        what: String,
    },
    /// Longer or shorter than it says.
    #[error("image {image} is {found} bytes long, expected {expected}")]
    Length {
        /// The file.
        image: PathBuf,
        /// Its length.
        found: u64,
        /// The length its header gives.
        expected: u64,
    },
    /// A format this program does not read.
    #[error("image {image} is of format version {found}, expected {expected}")]
    Version {
        /// The file.
        image: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        expected: u32,
    },
    /// A section's checksum does not match its bytes.
    #[error("image {image}: {section} is damaged (blake3 {found}, expected {expected})")]
    DamagedSection {
        /// The file.
        image: PathBuf,
        /// Which section.
        section: &'static str,
        /// Checksum of its bytes.
        found: HexHash,
        /// Checksum in the header.
        expected: HexHash,
    },
    /// A chunk's checksum does not match its bytes.
    #[error(
        "image {image}: .wf.pages chunk {chunk} is damaged (blake3 {found}, expected {expected})"
    )]
    DamagedChunk {
        /// The file.
        image: PathBuf,
        /// Which chunk.
        chunk: u64,
        /// Checksum of its bytes.
        found: HexHash,
        /// Checksum in the table.
        expected: HexHash,
    },
    /// An earlier image that this one needs is not there or not the same.
    #[error("image {image}: base {base}: found {found}, expected {expected}")]
    Base {
        /// The file.
        image: PathBuf,
        /// Name of the base.
        base: PathBuf,
        /// What was found.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// The snapshot record cannot be read.
    #[error("image {image}: .wf.meta cannot be read: {what}")]
    Meta {
        /// The file.
        image: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// What is to be stored could not be read.
    #[error("contents at {at:#x} of {space} cannot be read")]
    Source {
        /// Process or inode.
        space: String,
        /// Address or offset.
        at: u64,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// The first bytes of a checksum, as hex.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HexHash(pub Hash);

impl std::fmt::Display for HexHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0[..8]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for HexHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl ImageError {
    /// From a layout error of this section.
    pub(super) fn layout(
        image: &std::path::Path,
        section: SectionKind,
        error: LayoutError,
    ) -> Self {
        let image = image.to_path_buf();
        let what = match error {
            LayoutError::Version { found } => {
                return ImageError::Version {
                    image,
                    found,
                    expected: loader::layout::FORMAT_VERSION,
                };
            }
            LayoutError::Short { found, expected } => {
                format!("{found} bytes found, {expected} expected")
            }
            LayoutError::Magic => "the magic is not there; not an image".to_owned(),
            LayoutError::HeaderHash => "the header's checksum does not match".to_owned(),
            LayoutError::Sections { index } => format!("section {index} is not where it belongs"),
            LayoutError::Table => "a table does not fit".to_owned(),
        };
        ImageError::Layout {
            image,
            section: section.name(),
            what,
        }
    }

    pub(super) fn io(
        image: &std::path::Path,
        what: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        let image = image.to_path_buf();
        move |source| ImageError::Io {
            image,
            what,
            source,
        }
    }
}
