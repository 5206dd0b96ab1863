//! Building the product: its binaries, and the context of the image.
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use shim_cluster::Reporter;

use crate::tool::{cargo, run, target_dir, workspace};

/// Debian packages whose files the image has: libc with its name service modules, and CA certificates.
const IMAGE_PACKAGES: [&str; 3] = ["libc6", "libgcc-s1", "ca-certificates"];

/// The binaries.
#[derive(Debug, Clone)]
pub struct Product {
    /// kubectl-shim
    pub plugin: PathBuf,
    /// shim-controller
    pub controller: PathBuf,
    /// shim-installer
    pub installer: PathBuf,
}

/// How the binaries are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// As the unit tests are: what they have compiled is used again.
    Dev,
    /// As users get them.
    Release,
}

/// Builds the binaries.
pub fn product(profile: Profile, report: &Reporter) -> Result<Product> {
    let build = |title: &str, args: &[&str]| report.step(title, || cargo(".", &[&["build", "--quiet"], args].concat()));
    let folder = match profile {
        Profile::Dev => {
            build("building the product", &["--workspace", "--bins"])?;
            "debug"
        }
        // The installer alone, so that it does not get the features that the others need.
        Profile::Release => {
            build("building plugin and controller", &["--release", "-p", "kubectl-shim", "-p", "shim-controller"])?;
            build("building the installer", &["--release", "-p", "shim-installer"])?;
            "release"
        }
    };
    let binary = |name: &str| target_dir().join(folder).join(name);
    Ok(Product {
        plugin: binary("kubectl-shim"),
        controller: binary("shim-controller"),
        installer: binary("shim-installer"),
    })
}

/// Builds the Wasm shim of the tests.
pub fn wasmi_shim(report: &Reporter) -> Result<PathBuf> {
    let target = target_dir().join("wasmi-shim");
    let text = target.to_string_lossy().into_owned();
    report.step("building the Wasm shim", || {
        cargo("tests/wasmi-shim", &["build", "--release", "--quiet", "--locked", "--target-dir", &text])
    })?;
    Ok(target.join("release/containerd-shim-wasmi-v1"))
}

/// Makes the folder that `deploy/Containerfile` is built in.
pub fn image_context(product: &Product) -> Result<PathBuf> {
    let context = target_dir().join("image");
    let root = context.join("root");
    if !root.join("etc/ssl/certs/ca-certificates.crt").exists() {
        image_root(&root)?;
    }
    for binary in [&product.controller, &product.installer] {
        place(binary, &context)?;
    }
    fs::copy(workspace().join("deploy/Containerfile"), context.join("Containerfile"))?;
    Ok(context)
}

fn place(binary: &Path, folder: &Path) -> Result<()> {
    let name = binary.file_name().context("a binary without a name")?;
    fs::copy(binary, folder.join(name)).with_context(|| binary.display().to_string())?;
    run(Command::new("strip").arg(folder.join(name)))?;
    fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Unpacks the packages. They are of this machine's release: the binaries need its libc or a newer one.
fn image_root(root: &Path) -> Result<()> {
    let packages = root.with_file_name("packages");
    for folder in [root, &packages] {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder)?;
    }
    let mut download = Command::new("apt-get");
    download.args(["-qq", "download", "-o", "APT::Sandbox::User=root"]).args(IMAGE_PACKAGES).current_dir(&packages);
    // A machine that has all packages may have no lists.
    run(&mut download)
        .or_else(|_| run(Command::new("apt-get").args(["-qq", "update"])).and_then(|()| run(&mut download)))?;
    for package in fs::read_dir(&packages)? {
        run(Command::new("dpkg-deb").arg("-x").arg(package?.path()).arg(root))?;
    }
    for unneeded in ["usr/share/doc", "usr/share/man", "usr/share/lintian", "usr/share/gcc"] {
        let _ = fs::remove_dir_all(root.join(unneeded));
    }
    bundle_certificates(root)
}

/// What the package's own script would do when it is installed.
fn bundle_certificates(root: &Path) -> Result<()> {
    let mut files: Vec<_> = fs::read_dir(root.join("usr/share/ca-certificates/mozilla"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    let bundle = files.iter().map(fs::read_to_string).collect::<Result<String, _>>()?;
    let folder = root.join("etc/ssl/certs");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("ca-certificates.crt"), bundle)?;
    Ok(())
}
