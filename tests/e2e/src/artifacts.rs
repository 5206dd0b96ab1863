//! Artifacts of the Wasm shim, good and bad, on the file server of the cluster.
use std::io::Write;

use anyhow::Result;
use sha2::{Digest, Sha256};
use shim_cluster::FileServer;
use shim_core::names::hex;

/// A file on the server.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// Its address.
    pub url: String,
    /// Its digest.
    pub sha256: String,
}

/// How an artifact is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// tar.gz
    TarGz,
    /// tar.zst
    TarZst,
    /// The bare binary.
    Raw,
}

/// Makes artifacts of the Wasm shim.
#[derive(Debug)]
pub struct Artifacts<'s> {
    binary: Vec<u8>,
    server: &'s FileServer,
}

impl<'s> Artifacts<'s> {
    /// `binary`: content of the shim.
    pub fn new(binary: Vec<u8>, server: &'s FileServer) -> Self {
        Self { binary, server }
    }

    /// Build number `number` of the shim: the same program with a byte more for each, so that it has another digest.
    pub fn build(&self, number: usize, packing: Packing) -> Result<Artifact> {
        let mut binary = self.binary.clone();
        binary.extend(std::iter::repeat_n(0, number));
        let tar = || tar_of("containerd-shim-wasmi-v1", &binary);
        let (suffix, content) = match packing {
            Packing::TarGz => ("tar.gz", gzip(&tar()?)?),
            Packing::TarZst => ("tar.zst", zstd::encode_all(&tar()?[..], 1)?),
            Packing::Raw => ("bin", binary.clone()),
        };
        self.serve(&format!("wasmi-{number}.{suffix}"), &content)
    }

    /// An archive without a shim.
    pub fn without_binary(&self) -> Result<Artifact> {
        self.serve("empty.tar.gz", &gzip(&tar_of("README", b"no shim here\n")?)?)
    }

    fn serve(&self, name: &str, content: &[u8]) -> Result<Artifact> {
        Ok(Artifact { url: self.server.put(name, content)?, sha256: hex(&Sha256::digest(content)) })
    }
}

fn tar_of(name: &str, content: &[u8]) -> Result<Vec<u8>> {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o755);
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header, name, content)?;
    Ok(archive.into_inner()?)
}

fn gzip(content: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content)?;
    Ok(encoder.finish()?)
}
