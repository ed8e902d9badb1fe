//! The file that lets a starter come to a shadow by TLS: made by the shadow for one job, carried to the execute machine
//! by whoever submits. Who has it has the job's files.

use crate::raw::shown_path;
use crate::report::{Exit, Explain, Failure, Outcome};
use line::Keys;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const SCHEMA_VERSION: u32 = 1;

/// What is written.
#[derive(Deserialize, Serialize)]
struct IdentityV1 {
    schema_version: u32,
    /// Where the shadow listens, as it sees it.
    address: String,
    /// The shadow's certificate, DER in hexadecimal digits.
    shadow_certificate: String,
    /// The starter's certificate and private key.
    certificate: String,
    private_key: String,
}

/// What a starter needs.
pub(crate) struct Identity {
    /// Its own keys.
    pub(crate) keys: Keys,
    /// The shadow's certificate.
    pub(crate) shadow: Vec<u8>,
}

/// The file, as long as the shadow is there.
pub(crate) struct IdentityFile(PathBuf);

impl IdentityFile {
    /// Writes it, for its owner only.
    pub(crate) fn write(
        path: &Path,
        address: &str,
        shadow: &Keys,
        starter: &Keys,
    ) -> Outcome<Self> {
        let identity = IdentityV1 {
            schema_version: SCHEMA_VERSION,
            address: address.to_owned(),
            shadow_certificate: to_hex(&shadow.certificate),
            certificate: to_hex(&starter.certificate),
            private_key: to_hex(&starter.private),
        };
        let text = serde_json::to_string_pretty(&identity)?;
        let write = || -> io::Result<()> {
            // What another shadow has left; nobody who has it open reads ours.
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut options = OpenOptions::new();
            let mut file = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path)?;
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")
        };
        write().context(|| format!("cannot write {}", shown_path(path)))?;
        Ok(IdentityFile(path.to_owned()))
    }
}

/// The keys of both sides, for the shadow alone: it is to be known again when it is started again.
#[derive(Deserialize, Serialize)]
struct KeptKeysV1 {
    schema_version: u32,
    port: u16,
    shadow: [String; 2],
    starter: [String; 2],
}

/// See [`KeptKeysV1`].
pub(crate) struct KeptKeys {
    /// Where the shadow listened.
    pub(crate) port: u16,
    /// The shadow's.
    pub(crate) ours: Keys,
    /// The starter's.
    pub(crate) theirs: Keys,
}

impl KeptKeys {
    fn path(dir: &Path) -> PathBuf {
        dir.join("keys")
    }

    /// Writes them into the folder of the shadow's state, whole or not at all.
    pub(crate) fn write(&self, dir: &Path) -> Outcome<()> {
        let texts = |keys: &Keys| [to_hex(&keys.certificate), to_hex(&keys.private)];
        let text = serde_json::to_string_pretty(&KeptKeysV1 {
            schema_version: SCHEMA_VERSION,
            port: self.port,
            shadow: texts(&self.ours),
            starter: texts(&self.theirs),
        })?;
        let path = Self::path(dir);
        let write = || -> io::Result<()> {
            let beside = dir.join("keys.new");
            let mut options = OpenOptions::new();
            options.create(true).truncate(true).write(true).mode(0o600);
            options.open(&beside)?.write_all(text.as_bytes())?;
            fs::rename(beside, &path)
        };
        write().context(|| format!("cannot write {}", shown_path(&path)))
    }

    /// None: there are none yet.
    pub(crate) fn read(dir: &Path) -> Outcome<Option<Self>> {
        let path = Self::path(dir);
        let shown = shown_path(&path);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.context(|| format!("cannot read {shown}"))?,
        };
        let kept: KeptKeysV1 =
            serde_json::from_str(&text).context(|| format!("cannot read {shown}"))?;
        let keys = |[certificate, private]: &[String; 2]| {
            Some(Keys {
                certificate: from_hex(certificate)?,
                private: from_hex(private)?,
            })
        };
        match (keys(&kept.shadow), keys(&kept.starter), kept.schema_version) {
            (Some(ours), Some(theirs), SCHEMA_VERSION) => Ok(Some(KeptKeys {
                port: kept.port,
                ours,
                theirs,
            })),
            (.., found) => {
                let message = format!(
                    "{shown} has version {found} or is not hexadecimal, expected version {SCHEMA_VERSION}"
                );
                Err(Failure::new(Exit::Failed, message))
            }
        }
    }
}

impl Drop for IdentityFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Identity {
    /// Reads it; a file that others can read is no secret and is refused.
    pub(crate) fn read(path: &Path) -> Outcome<Self> {
        let shown = shown_path(path);
        let describe = || format!("cannot read {shown}");
        let mode = fs::metadata(path).context(describe)?.permissions().mode();
        if mode & 0o077 != 0 {
            let message = format!(
                "{shown} has mode {:o}, expected 600: others may have read it",
                mode & 0o777
            );
            return Err(Failure::new(Exit::Usage, message));
        }
        let text = fs::read_to_string(path).context(describe)?;
        let identity: IdentityV1 = serde_json::from_str(&text).context(describe)?;
        if identity.schema_version != SCHEMA_VERSION {
            let found = identity.schema_version;
            let message = format!("{shown} has version {found}, expected {SCHEMA_VERSION}");
            return Err(Failure::new(Exit::Failed, message));
        }
        let bytes = |name: &str, text: &str| {
            from_hex(text).ok_or_else(|| {
                Failure::new(Exit::Failed, format!("{shown}: {name} is not hexadecimal"))
            })
        };
        Ok(Identity {
            keys: Keys {
                certificate: bytes("certificate", &identity.certificate)?,
                private: bytes("private_key", &identity.private_key)?,
            },
            shadow: bytes("shadow_certificate", &identity.shadow_certificate)?,
        })
    }
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_its_owners_and_reads_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("identity");
        fs::write(&path, "an old one").expect("writes");
        let (shadow, starter) = (Keys::make().expect("keys"), Keys::make().expect("keys"));
        let file = IdentityFile::write(&path, "tls:here:1", &shadow, &starter).expect("writes");
        let identity = Identity::read(&path).expect("reads");
        assert!(identity.keys == starter && identity.shadow == shadow.certificate);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("sets");
        let failure = Identity::read(&path).err().expect("is no secret");
        assert!(failure.to_string().contains("has mode 640, expected 600"));
        drop(file);
        assert!(!path.exists());
        assert!(KeptKeys::read(dir.path()).expect("reads").is_none());
        let kept = KeptKeys {
            port: 7,
            ours: shadow,
            theirs: starter,
        };
        kept.write(dir.path()).expect("writes");
        let read = KeptKeys::read(dir.path())
            .expect("reads")
            .expect("is there");
        assert!(read.port == 7 && read.ours == kept.ours && read.theirs == kept.theirs);
        assert_eq!(from_hex("0fA"), None);
        assert_eq!(from_hex("0g"), None);
        assert_eq!(from_hex("0fA0"), Some(vec![0x0f, 0xa0]));
    }
}
