//! Keys that are made for one job, and known by nothing but themselves: no authority signs them.

/// Keys cannot be made or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// They cannot be made.
    #[error("keys cannot be made")]
    Making(#[from] rcgen::Error),
    /// They are not keys.
    #[error("these are no keys for TLS")]
    Unusable(#[from] rustls::Error),
}

/// A private key and the certificate that goes with it, both as DER.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// What is shown, and what the other side compares.
    pub certificate: Vec<u8>,
    /// PKCS #8.
    pub private: Vec<u8>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

impl Keys {
    /// New ones.
    ///
    /// # Errors
    /// [`KeyError::Making`].
    pub fn make() -> Result<Self, KeyError> {
        // The name is the same everywhere: what counts is the key.
        let made = rcgen::generate_simple_self_signed([crate::secure::NAME.to_owned()])?;
        Ok(Keys {
            certificate: made.cert.der().to_vec(),
            private: made.signing_key.serialize_der(),
        })
    }
}
