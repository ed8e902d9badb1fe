//! What a program asks about as it begins, looked at for it in advance.

use crate::foresight::{Asked, Program};
use crate::names::Lies;
use crate::session::Session;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use wire::{
    AllSought, Attribute, Began, Finding, Foresee, Foreseen, MOST_DATA, Manner, Open, Opened,
    Packer, Place, ReadLink, Reply, Sought,
};

/// Of larger files only the beginning comes along: most are libraries, of which the job may have its own copy.
const SMALL: u64 = 64 << 10;
const BEGINNING: u32 = 4 << 10;
/// Bytes of the first entries of a folder.
const ENTRIES: u32 = 64 << 10;

impl Session {
    /// What is at the names that this program's processes have asked about before.
    pub(super) fn foresee(
        &self,
        asked: &Foresee,
        out: &mut Vec<u8>,
    ) -> Result<Reply<'static>, Errno> {
        let program = self.program(asked.program)?;
        let mut data = vec![0; (asked.bytes as usize).min(MOST_DATA)];
        let mut writer = Packer::new(&mut data);
        let mut files = self.room_for_offers();
        for one in self.foresight.of(program) {
            // Nobody asks: that it is not allowed is not for the log.
            if !matches!(self.allowed.place(&one.1), Lies::Outside | Lies::Above) {
                self.look_ahead(&one, &mut files, &mut writer);
            }
        }
        let len = writer.len();
        out.extend_from_slice(&data[..len]);
        Ok(Reply::Done)
    }

    /// Names that a process has asked about.
    pub(super) fn began(&self, began: &Began, data: &[u8]) -> Result<Reply<'static>, Errno> {
        let program = self.program(began.program)?;
        self.foresight.learn(program, AllSought::new(data));
        Ok(Reply::Done)
    }

    fn program(&self, handle: u64) -> Result<Program, Errno> {
        let file = self.get(handle)?;
        Ok(Program::of(&rustix::fs::fstat(&file.fd)?))
    }

    /// Appends what is there; nothing if it cannot be told now, or has no room.
    fn look_ahead(&self, (manner, name): &Asked, files: &mut usize, into: &mut Packer<'_>) {
        let sought = Sought {
            manner: *manner,
            name,
        };
        let mut behind = vec![];
        let place = Place { at: 0, name };
        let found = match manner {
            Manner::File | Manner::Folder => self.open_ahead(place, *manner, files, &mut behind),
            Manner::Target | Manner::Itself => {
                let follow = *manner == Manner::Target;
                self.attributes(&Attribute { place, follow })
            }
            Manner::Link => match self.read_link(&ReadLink { place }, &mut behind) {
                // It is no link: its attributes say so.
                Err(Errno::INVAL) => self.attributes(&Attribute {
                    place,
                    follow: false,
                }),
                answer => answer,
            },
        };
        let finding = match found {
            Err(Errno::NOENT) => Finding::Absent,
            Ok(Reply::Attributes(attributes)) => Finding::There(attributes),
            Ok(Reply::Opened(Opened { handle, attributes })) => {
                let len = behind.len() as u32;
                let finding = Finding::Open {
                    handle,
                    attributes,
                    len,
                };
                if into.push(&Foreseen { sought, finding }, &behind).is_err() {
                    let _ = self.remove(handle);
                } else {
                    self.note_offered(handle, &attributes);
                    *files -= 1;
                }
                return;
            }
            Ok(Reply::Done) => Finding::Link(&behind),
            _ => return,
        };
        let _ = into.push(&Foreseen { sought, finding }, &[]);
    }

    fn open_ahead(
        &self,
        place: Place<'_>,
        manner: Manner,
        files: &mut usize,
        behind: &mut Vec<u8>,
    ) -> Result<Reply<'static>, Errno> {
        let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        if manner == Manner::Folder {
            flags |= OFlags::DIRECTORY;
        }
        let looked = self.attributes(&Attribute {
            place,
            follow: true,
        })?;
        let Reply::Attributes(attributes) = looked else {
            return Err(Errno::INVAL);
        };
        let (is_right, first) = match FileType::from_raw_mode(attributes.mode) {
            FileType::RegularFile if attributes.size <= SMALL => {
                (manner == Manner::File, attributes.size as u32)
            }
            FileType::RegularFile => (manner == Manner::File, BEGINNING),
            FileType::Directory if manner == Manner::Folder => (true, ENTRIES),
            // Somebody who finds out by opening it.
            FileType::Directory => (true, 0),
            _ => (false, 0),
        };
        if !is_right || *files == 0 {
            return Ok(looked);
        }
        let open = Open {
            place,
            flags: flags.bits(),
            mode: 0,
            first,
        };
        self.open(&open, behind)
    }
}
