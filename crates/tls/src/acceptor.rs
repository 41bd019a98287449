//! What a server shows to its clients, and what it asks of them.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use minos_net::Wire;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    server::WebPkiClientVerifier,
};

use crate::Incoming;

/// The files with keys and certificates, in PEM.
#[derive(Clone, Debug)]
pub struct Files {
    /// The server's certificate, and those between it and an authority.
    pub cert: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// Authorities, one of which must have signed a client's certificate; without it clients need none.
    pub client_ca: Option<PathBuf>,
}

/// Why the files are of no use.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// A file does not contain what it should.
    #[error("{}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// Accepts streams with the certificate in force.
pub struct Acceptor {
    files: Files,
    in_force: Mutex<Arc<ServerConfig>>,
    broken: Arc<AtomicU64>,
}

impl Acceptor {
    /// Reads `files`.
    ///
    /// # Errors
    /// A file cannot be read or is no PEM of its kind, or the key is not that of the certificate.
    pub fn load(files: Files) -> Result<Self, LoadError> {
        let in_force = Mutex::new(read(&files)?);
        Ok(Self { files, in_force, broken: Arc::default() })
    }

    /// Reads the files again, for streams that are accepted from now on. Open ones keep what they have agreed on.
    ///
    /// # Errors
    /// As [`load`](Self::load); then the old certificate stays in force.
    pub fn reload(&self) -> Result<(), LoadError> {
        let config = read(&self.files)?;
        *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// Begins a handshake with the client at the other end of `wire`; `None` without memory or random bytes for it.
    pub fn accept<W: Wire>(&self, wire: W) -> Option<Incoming<W>> {
        Incoming::new(wire, self.config(), Arc::clone(&self.broken))
    }

    /// What is in force now, for streams that others shake hands on.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.in_force.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// True if clients must show a certificate.
    pub fn asks_for_certificates(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// Open streams whose other end has broken the protocol.
    pub fn broken(&self) -> u64 {
        self.broken.load(Relaxed)
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Acceptor").field(&self.files).finish()
    }
}

fn read(files: &Files) -> Result<Arc<ServerConfig>, LoadError> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_slice(&bytes(&files.key)?);
    let key = key.map_err(|error| content(&files.key, text_of(&error)))?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| content(&files.cert, error))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => builder.with_client_cert_verifier(verifier(path, provider)?),
    };
    let config = builder.with_single_cert(chain, key);
    config
        .map(Arc::new)
        .map_err(|error| content(&files.cert, format!("with {}: {error}", files.key.display())))
}

fn verifier(
    path: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, LoadError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots.add(authority).map_err(|error| content(path, error))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    verifier.build().map_err(|error| content(path, error))
}

/// The certificates in a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let all = CertificateDer::pem_slice_iter(&bytes(path)?).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| content(path, text_of(&error)))?;
    if all.is_empty() {
        return Err(content(path, text_of(&pem::Error::NoItemsFound)));
    }
    Ok(all)
}

fn bytes(path: &Path) -> Result<Vec<u8>, LoadError> {
    fs::read(path).map_err(|error| LoadError::Read { path: path.to_owned(), error })
}

fn text_of(error: &pem::Error) -> String {
    match error {
        pem::Error::NoItemsFound => "it has no PEM of the kind that is needed".to_owned(),
        other => format!("it is no PEM: {other}"),
    }
}

fn content(path: &Path, reason: impl ToString) -> LoadError {
    LoadError::Content { path: path.to_owned(), reason: reason.to_string() }
}
