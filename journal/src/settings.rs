//! What a journal may cost, and against what it protects.

use crate::{Boot, Brim};
use std::path::PathBuf;
use std::sync::Arc;

/// What the old state survives.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Durability {
    /// A power loss: it is on the disk before the change is made.
    #[default]
    PowerLoss,
    /// The end of any process, but not of the machine: it is written before the change is made.
    Kill,
}

/// How a journal works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the old state survives.
    pub durability: Durability,
    /// Most bytes of old state. A change that needs more is refused with EDQUOT.
    pub most_bytes: u64,
    /// Who is told when nearly as many are used.
    pub brim: Option<Arc<Brim>>,
    /// Folders of the user's in which a side folder may be made, for changes on the same mount.
    pub side_folders: Vec<PathBuf>,
    /// The run of the machine, if it is not to be asked for.
    #[doc(hidden)]
    pub boot: Option<Boot>,
    /// As if the file system had no hard links.
    #[doc(hidden)]
    pub no_links: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            durability: Durability::PowerLoss,
            most_bytes: u64::MAX,
            brim: None,
            side_folders: vec![],
            boot: None,
            no_links: false,
        }
    }
}
