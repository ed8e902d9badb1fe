//! Lines through TLS 1.3 whose ends know each other's certificate: the very bytes, no authority, no names, no dates.
//!
//! ```text
//! connected --handshake, within a time--> line      `--another certificate, garbage, too slow--> SecureError, closed
//! ```

use crate::keys::{KeyError, Keys};
use crate::{HANDSHAKE_WITHIN, Line};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    DistinguishedName, ServerConfig, ServerConnection, SignatureScheme,
};
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// In all certificates; nobody looks at it.
pub(crate) const NAME: &str = "wayfarer.invalid";
/// Bytes read or encrypted at once.
/// Before the kernel asks whether the other side is there; it is lost when it has been asked three times in as long.
const SILENT_FOR: Duration = Duration::from_secs(15);
const PORTION: usize = 256 << 10;

/// No TLS line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecureError {
    /// The connection broke.
    #[error("the connection broke before both sides knew each other")]
    Broken(#[from] io::Error),
    /// It took too long.
    #[error("the other side has not said who it is in {} s", HANDSHAKE_WITHIN.as_secs())]
    Late,
    /// What came is no TLS, or not from whom we expect.
    #[error("the other side is not who it should be")]
    Stranger(#[source] rustls::Error),
}

/// Makes lines of connections that come.
#[derive(Clone, Debug)]
pub struct Acceptor(Arc<ServerConfig>);

/// Makes lines of connections that were made.
#[derive(Clone, Debug)]
pub struct Connector(Arc<ClientConfig>);

impl Acceptor {
    /// With our keys, for the one that has this certificate.
    ///
    /// # Errors
    /// [`KeyError::Unusable`].
    pub fn new(ours: &Keys, theirs: &[u8]) -> Result<Self, KeyError> {
        let pinned = Arc::new(Pinned::new(theirs));
        let provider = pinned.provider.clone();
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let (chain, key) = identity(ours);
        let mut config = builder
            .with_client_cert_verifier(pinned)
            .with_single_cert(chain, key)?;
        // Whoever comes again proves again who it is.
        config.send_tls13_tickets = 0;
        Ok(Acceptor(Arc::new(config)))
    }

    /// The line, when the other side has proved to be who it should.
    ///
    /// # Errors
    /// [`SecureError`].
    pub fn accept(&self, socket: TcpStream) -> Result<Line, SecureError> {
        let connection = ServerConnection::new(self.0.clone()).map_err(SecureError::Stranger)?;
        begin(connection.into(), socket)
    }
}

impl Connector {
    /// With our keys, to the one that has this certificate.
    ///
    /// # Errors
    /// [`KeyError::Unusable`].
    pub fn new(ours: &Keys, theirs: &[u8]) -> Result<Self, KeyError> {
        let pinned = Arc::new(Pinned::new(theirs));
        let provider = pinned.provider.clone();
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let (chain, key) = identity(ours);
        let mut config = builder
            .dangerous()
            .with_custom_certificate_verifier(pinned)
            .with_client_auth_cert(chain, key)?;
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        Ok(Connector(Arc::new(config)))
    }

    /// The line. That the other side does not want us shows when something is read from it.
    ///
    /// # Errors
    /// [`SecureError`].
    pub fn connect(&self, socket: TcpStream) -> Result<Line, SecureError> {
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        let connection = ClientConnection::new(self.0.clone(), name);
        begin(connection.map_err(SecureError::Stranger)?.into(), socket)
    }
}

fn identity(keys: &Keys) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let certificate = CertificateDer::from(keys.certificate.clone());
    let key = PrivatePkcs8KeyDer::from(keys.private.clone());
    (vec![certificate], PrivateKeyDer::Pkcs8(key))
}

/// Both sides prove who they are.
fn begin(mut tls: Connection, socket: TcpStream) -> Result<Line, SecureError> {
    let deadline = Instant::now() + HANDSHAKE_WITHIN;
    socket.set_nodelay(true)?;
    notice_loss(&socket)?;
    while tls.is_handshaking() {
        flush(&mut tls, &socket)?;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(SecureError::Late);
        }
        socket.set_read_timeout(Some(left))?;
        match tls.read_tls(&mut &socket) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(SecureError::Late);
            }
            Err(error) => return Err(error.into()),
        }
        if let Err(error) = tls.process_new_packets() {
            // The alert that says why.
            let _ = flush(&mut tls, &socket);
            return Err(SecureError::Stranger(error));
        }
    }
    flush(&mut tls, &socket)?;
    socket.set_read_timeout(None)?;
    tls.set_buffer_limit(None);
    let shared = Arc::new(Shared {
        tls: Mutex::new(tls),
    });
    let ends = (
        OwnedFd::from(socket.try_clone()?),
        OwnedFd::from(socket.try_clone()?),
    );
    Ok(Line {
        input: Box::new(Input {
            shared: shared.clone(),
            socket: socket.try_clone()?,
            portion: vec![0; PORTION],
            unread: 0..0,
        }),
        output: Box::new(Output {
            shared,
            socket,
            pending: vec![],
            sent: 0,
        }),
        ends,
        is_left: None,
    })
}

/// An end that is silent, or takes nothing, for so long is lost.
fn notice_loss(socket: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, SILENT_FOR)?;
    sockopt::set_tcp_keepintvl(socket, SILENT_FOR / 3)?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    let longest = u32::try_from(2 * SILENT_FOR.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(socket, longest)?)
}

fn flush(tls: &mut Connection, mut socket: &TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(&mut socket)?;
    }
    Ok(())
}

/// What both directions need. Nobody waits for the other side while it is locked.
struct Shared {
    tls: Mutex<Connection>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Input {
    shared: Arc<Shared>,
    socket: TcpStream,
    portion: Vec<u8>,
    /// What has come and is not decrypted yet.
    unread: Range<usize>,
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut unread = &self.portion[self.unread.clone()];
            let read = decrypt(&mut self.shared.lock(), &mut unread, buffer)?;
            self.unread.start = self.unread.end - unread.len();
            match read {
                Some(len @ 1..) => return Ok(len),
                None => return Ok(0),
                Some(0) => {}
            }
            let len = self.socket.read(&mut self.portion)?;
            if len == 0 {
                return Ok(0);
            }
            self.unread = 0..len;
        }
    }
}

/// As much as there is room for and has come; none: the other side has ended the line.
fn decrypt(
    tls: &mut Connection,
    unread: &mut &[u8],
    buffer: &mut [u8],
) -> io::Result<Option<usize>> {
    let mut filled = 0;
    loop {
        match tls.reader().read(&mut buffer[filled..]) {
            Ok(0) if filled < buffer.len() => return Ok((filled > 0).then_some(filled)),
            Ok(len) => filled += len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if filled == buffer.len() || unread.is_empty() {
            return Ok(Some(filled));
        }
        tls.read_tls(unread)?;
        tls.process_new_packets().map_err(io::Error::other)?;
    }
}

struct Output {
    shared: Arc<Shared>,
    socket: TcpStream,
    /// What is encrypted; the first `sent` bytes have gone.
    pending: Vec<u8>,
    sent: usize,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush()?;
        let mut taken = 0;
        let mut tls = self.shared.lock();
        for slice in slices {
            let part = &slice[..slice.len().min(PORTION - taken)];
            tls.writer().write_all(part)?;
            taken += part.len();
        }
        while tls.wants_write() {
            tls.write_tls(&mut self.pending)?;
        }
        drop(tls);
        match self.flush() {
            // It is ours now.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(taken),
            Err(error) => Err(error),
            Ok(()) => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.pending.len() {
            match self.socket.write(&self.pending[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.pending.clear();
        self.sent = 0;
        Ok(())
    }
}

/// Knows one certificate.
#[derive(Debug)]
struct Pinned {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn new(certificate: &[u8]) -> Self {
        Pinned {
            certificate: CertificateDer::from(certificate.to_vec()),
            provider: Arc::new(rustls::crypto::ring::default_provider()),
        }
    }

    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        if *shown == self.certificate {
            return Ok(());
        }
        let error = CertificateError::ApplicationVerificationFailure;
        Err(rustls::Error::InvalidCertificate(error))
    }

    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, shown, signature, algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Only TLS 1.3 is spoken.
fn too_old() -> rustls::Error {
    rustls::Error::General("TLS 1.2 is not spoken".to_owned())
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check_signature(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check_signature(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}
