//! An image on its way to where its job goes on: it comes behind those that it is based on, and lies beside them.
//!
//! ```text
//! here -> there   length of a name (1), the name, length of the file (8, little-endian), the file;   as often as there are files
//!                 0: the last was the image
//! there -> here   FITS, behind as many files as `--seated` says: this machine has what they need
//! ```
//! Nothing else is answered: whoever starts it there reads every byte. Between two files there may be any time, in which the job runs elsewhere.

use crate::raw;
use ckpt_lib::image::write_behind;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The machine can go on from what has come.
const FITS: u8 = b'f';
/// Bytes after which the disk is told to begin writing.
const PORTION: u64 = 4 << 20;

/// Sends a file.
pub(super) fn send(path: &Path, output: &mut dyn Write) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let len = u8::try_from(name.len()).map_err(|_| wrong("its name is too long".to_owned()))?;
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(0))?;
    let whole = file.metadata()?.len();
    let head = [&[len], name, &whole.to_le_bytes()].concat();
    output.write_all(&head)?;
    match io::copy(&mut file.take(whole), output)? {
        sent if sent == whole => output.flush(),
        sent => Err(wrong(format!("found {sent} bytes, expected {whole}"))),
    }
}

/// That was the last.
pub(super) fn end(output: &mut dyn Write) -> io::Result<()> {
    output.write_all(&[0])?;
    output.flush()
}

/// Says that this machine can go on from what has come.
pub(super) fn say_fits(output: &mut dyn Write) -> io::Result<()> {
    output.write_all(&[FITS])?;
    output.flush()
}

/// Waits until the other machine says so.
pub(super) fn hear_fits(input: &mut dyn Read) -> io::Result<()> {
    let mut word = [0];
    input.read_exact(&mut word)?;
    match word {
        [FITS] => Ok(()),
        [other] => Err(wrong(format!("found {other}, expected {FITS}"))),
    }
}

/// Receives so many files into a folder; the last of them.
///
/// # Errors
/// As [`receive`].
pub(super) fn receive_first(
    dir: &Path,
    count: u32,
    input: &mut dyn Read,
) -> io::Result<Option<PathBuf>> {
    let mut last = None;
    for _ in 0..count {
        match receive_one(dir, input)? {
            None => return Err(wrong("found the end, expected another file".to_owned())),
            one => last = one,
        }
    }
    Ok(last)
}

/// Receives files into a folder; the last of them, or of those that came before. `came` is called with each.
///
/// # Errors
/// The line ended, the disk is full, or what came is none.
pub(super) fn receive(
    dir: &Path,
    before: Option<PathBuf>,
    input: &mut dyn Read,
    came: &mut dyn FnMut(&Path),
) -> io::Result<PathBuf> {
    let mut last = before;
    while let Some(one) = receive_one(dir, input)? {
        came(&one);
        last = Some(one);
    }
    last.ok_or_else(|| wrong("found no image".to_owned()))
}

/// None: there is no other.
fn receive_one(dir: &Path, input: &mut dyn Read) -> io::Result<Option<PathBuf>> {
    let mut len = [0];
    input.read_exact(&mut len)?;
    if len == [0] {
        return Ok(None);
    }
    let mut name = vec![0; usize::from(len[0])];
    input.read_exact(&mut name)?;
    let path = dir.join(file_name(&name)?);
    let mut len = [0; 8];
    input.read_exact(&mut len)?;
    let whole = u64::from_le_bytes(len);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(&path)?;
    let found = take(input, whole, &mut file)?;
    if found != whole {
        return Err(wrong(format!("found {found} bytes, expected {whole}")));
    }
    Ok(Some(path))
}

/// Takes so many bytes, or what there is; how many. The disk has them soon: what the restart writes down and waits for would wait for them, too.
fn take(input: &mut dyn Read, whole: u64, file: &mut File) -> io::Result<u64> {
    let mut at = 0;
    while at < whole {
        let portion = (whole - at).min(PORTION);
        let taken = io::copy(&mut input.take(portion), file)?;
        write_behind(file, at, taken);
        at += taken;
        if taken < portion {
            break;
        }
    }
    Ok(at)
}

/// One that leads nowhere else.
fn file_name(name: &[u8]) -> io::Result<&OsStr> {
    let is_usable = !name.contains(&b'/') && !name.contains(&0) && name != b"." && name != b"..";
    let name = OsStr::from_bytes(name);
    match is_usable {
        true => Ok(name),
        false => {
            let shown = raw::shown_path(name);
            Err(wrong(format!("found {shown}, expected the name of a file")))
        }
    }
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn came(bytes: &[u8]) -> io::Result<PathBuf> {
        let dir = tempfile::tempdir().expect("a folder");
        receive(dir.path(), None, &mut &bytes[..], &mut |_| {})
    }

    #[test]
    fn files_come_under_their_names_and_the_last_is_the_image() {
        let from = tempfile::tempdir().expect("a folder");
        let to = tempfile::tempdir().expect("a folder");
        let mut line = vec![];
        for (name, bytes) in [("job-1.img", &b"base"[..]), ("job-2.img", b"image")] {
            let path = from.path().join(name);
            fs::write(&path, bytes).expect("is made");
            send(&path, &mut line).expect("is sent");
        }
        end(&mut line).expect("is said");
        let image = receive(to.path(), None, &mut &line[..], &mut |_| {}).expect("comes");
        assert_eq!(image, to.path().join("job-2.img"));
        assert_eq!(fs::read(&image).expect("is there"), b"image");
        assert_eq!(
            fs::read(to.path().join("job-1.img")).expect("is there"),
            b"base"
        );
        for len in 0..line.len() {
            assert!(came(&line[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn what_comes_first_may_be_all_there_is() {
        let from = tempfile::tempdir().expect("a folder");
        let path = from.path().join("job-1.img");
        fs::write(&path, b"base").expect("is made");
        let mut line = vec![];
        send(&path, &mut line).expect("is sent");
        end(&mut line).expect("is said");
        let to = tempfile::tempdir().expect("a folder");
        let mut rest = &line[..];
        let first = receive_first(to.path(), 1, &mut rest).expect("comes");
        assert_eq!(first, Some(to.path().join("job-1.img")));
        let image = receive(to.path(), first.clone(), &mut rest, &mut |_| {}).expect("ends");
        assert_eq!(Some(image), first);
        let to = tempfile::tempdir().expect("a folder");
        let error = receive_first(to.path(), 2, &mut &line[..]).expect_err("one only");
        assert!(error.to_string().contains("another file"), "{error}");

        let mut said = vec![];
        say_fits(&mut said).expect("is said");
        hear_fits(&mut &said[..]).expect("is heard");
        hear_fits(&mut &b"!"[..]).expect_err("something else");
        hear_fits(&mut &b""[..]).expect_err("nothing");
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in [&b".."[..], b".", b"../x", b"/x", b"a\0b"] {
            let mut bytes = vec![name.len() as u8];
            bytes.extend(name);
            bytes.extend([0; 9]);
            let error = came(&bytes).expect_err("is refused");
            assert!(error.to_string().contains("name of a file"), "{error}");
        }
        assert!(
            came(&[0])
                .expect_err("is none")
                .to_string()
                .contains("no image")
        );
        let twice = [&[1, b'i'][..], &[0; 8], &[1, b'i'], &[0; 9]].concat();
        came(&twice).expect_err("one name");
    }
}
