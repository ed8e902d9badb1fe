//! What can be asked about an image, and made of one.

use clap::Args;

/// Show what an image holds
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: std::path::PathBuf,

    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Check every byte of an image, and of the images it builds on
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: std::path::PathBuf,

    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Make one whole image from an image and those it builds on
#[derive(Debug, Args)]
pub(crate) struct Flatten {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: std::path::PathBuf,

    /// Where to write the whole image; the file must not exist
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: std::path::PathBuf,

    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
