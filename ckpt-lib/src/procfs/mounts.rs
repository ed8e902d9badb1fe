//! `/proc/PID/mountinfo`.

use super::text::{ParseError, decimal, lines, unescape_octal, words};

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountLine {
    /// Its id, as in `mnt_id` of fdinfo.
    pub id: i32,
    /// Major and minor device number.
    pub device: (u32, u32),
    /// The folder of the file system that is mounted.
    pub root: Vec<u8>,
    /// Where it is mounted.
    pub mount_point: Vec<u8>,
    /// Type of the file system.
    pub kind: Vec<u8>,
    /// What it was mounted from: a device, a server, or any word.
    pub source: Vec<u8>,
}

/// Reads `mountinfo`.
///
/// # Errors
/// The first line that makes no sense.
pub fn parse_mountinfo(bytes: &[u8]) -> Result<Vec<MountLine>, ParseError> {
    lines(bytes).map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Result<MountLine, ParseError> {
    let fields: Vec<&[u8]> = words(line).collect();
    let field = |index: usize| {
        fields
            .get(index)
            .copied()
            .ok_or_else(|| ParseError::new("the fields of a mount", line))
    };
    let device = field(2)?;
    let colon = device
        .iter()
        .position(|byte| *byte == b':')
        .ok_or_else(|| ParseError::new("a device", line))?;
    let dash = fields.iter().position(|word| *word == b"-");
    let dash = dash.ok_or_else(|| ParseError::new("the separator of a mount", line))?;
    Ok(MountLine {
        id: decimal("a mount's id", field(0)?)?,
        device: (
            decimal("a device", &device[..colon])?,
            decimal("a device", &device[colon + 1..])?,
        ),
        root: unescape_octal(field(3)?),
        mount_point: unescape_octal(field(4)?),
        kind: field(dash + 1)?.to_vec(),
        source: unescape_octal(fields.get(dash + 2).copied().unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_mount_reads_right() {
        let text =
            b"24 27 0:6 / /a\\040b rw,relatime shared:1 master:2 - devtmpfs devtmpfs rw,mode=755\n";
        let mounts = parse_mountinfo(text).expect("parses");
        assert_eq!(mounts[0].id, 24);
        assert_eq!(mounts[0].device, (0, 6));
        assert_eq!(mounts[0].mount_point, b"/a b");
        assert_eq!(mounts[0].kind, b"devtmpfs");
        assert_eq!(mounts[0].source, b"devtmpfs");
    }
}
