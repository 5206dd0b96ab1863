//! Images for the nodes, built by buildah and pushed to the cluster's registry.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::Cmd;
use crate::control_plane::Part;
use crate::paths::Paths;
use crate::plan::{BUSYBOX_IMAGE, GATEWAY, NETNS, REGISTRY_PORT};
use crate::wait::until;

/// How long the registry may take to answer.
const REGISTRY_LIMIT: Duration = Duration::from_secs(30);

/// Builds and loads images into the registry that the nodes pull from.
#[derive(Clone, Debug)]
pub struct Images {
    paths: Paths,
}

/// How an archive of an image is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Archive {
    Oci,
    Docker,
}

impl Images {
    pub(crate) fn new(paths: &Paths) -> Self {
        Self { paths: paths.clone() }
    }

    /// Builds the `Containerfile` of a folder, which must start `FROM scratch`, and pushes it as `name` (`shim/installer:1`);
    /// its reference by digest for pods.
    pub fn build(&self, context: &Path, name: &str) -> Result<String> {
        let file = context.join("Containerfile");
        let build = self.buildah("bud").words("--quiet --isolation chroot -f").arg(file).arg("-t").arg(reference(name));
        build.arg(context).run()?;
        self.push(&reference(name), name)
    }

    /// Pushes the image of an OCI or Docker archive as `name`; its reference by digest for pods.
    pub fn load(&self, archive: &Path, name: &str) -> Result<String> {
        let transport = match format_of(archive)? {
            Archive::Oci => "oci-archive",
            Archive::Docker => "docker-archive",
        };
        let id = self.buildah("pull").arg("--quiet").arg(format!("{transport}:{}", archive.display())).run()?;
        self.push(id.trim(), name)
    }

    fn push(&self, image: &str, name: &str) -> Result<String> {
        let file = self.paths.run().join(format!("digest-{}", name.replace(['/', ':'], "-")));
        let push = self.buildah("push").words("--quiet --tls-verify=false --digestfile").arg(&file);
        push.arg(image).arg(format!("docker://{}", reference(name))).run()?;
        let digest = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        Ok(format!("{}@{}", repository(&reference(name)), digest.trim()))
    }

    /// buildah inside the namespace, with a storage of its own. vfs, since overlays over overlays fail on many a machine.
    fn buildah(&self, command: &str) -> Cmd {
        let run = self.paths.run().join("buildah");
        let cmd =
            Cmd::inside(NETNS, "buildah").arg("--root").arg(run.join("storage")).arg("--runroot").arg(run.join("run"));
        cmd.words("--storage-driver vfs").arg(command)
    }
}

fn reference(name: &str) -> String {
    format!("{GATEWAY}:{REGISTRY_PORT}/{name}")
}

/// A reference without its tag; the port of the registry is not one.
fn repository(reference: &str) -> &str {
    match reference.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => reference,
    }
}

fn format_of(archive: &Path) -> Result<Archive> {
    let list = Cmd::new("tar").arg("-tf").arg(archive).run()?;
    format_of_list(&list).with_context(|| format!("{} is no archive of an image", archive.display()))
}

fn format_of_list(list: &str) -> Option<Archive> {
    let has = |name: &str| list.lines().any(|line| line.trim_start_matches("./") == name);
    match () {
        () if has("oci-layout") => Some(Archive::Oci),
        () if has("manifest.json") => Some(Archive::Docker),
        () => None,
    }
}

/// Makes busybox with all its applets an image, and pushes it as soon as the registry answers.
pub(crate) fn push_busybox(images: &Images) -> Result<()> {
    let context = images.paths.run().join("busybox");
    let bin = context.join("bin");
    fs::create_dir_all(&bin)?;
    fs::copy(busybox()?, bin.join("busybox"))?;
    // Not the copy: a child that another thread just forked may still have it open for writing, and it can't be run then.
    for applet in Cmd::new(busybox()?).arg("--list").run()?.lines().filter(|&applet| applet != "busybox") {
        symlink("busybox", bin.join(applet))?;
    }
    fs::write(context.join("Containerfile"), include_str!("busybox.Containerfile"))?;
    wait_for_registry(&images.paths)?;
    let name = BUSYBOX_IMAGE.trim_start_matches(&reference(""));
    images.build(&context, name).map(drop)
}

pub(crate) fn busybox() -> Result<PathBuf> {
    let places = ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from);
    places.into_iter().find(|place| place.exists()).context("busybox is missing; install the package busybox-static")
}

fn wait_for_registry(paths: &Paths) -> Result<()> {
    let url = format!("http://{}", reference("v2/"));
    let busybox = busybox()?;
    until("the image registry", REGISTRY_LIMIT, || {
        if crate::control_plane::life(Part::Registry) == crate::process::Life::Ended {
            bail!("the image registry ended, its log: {}", paths.log(Part::Registry.name()).display());
        }
        Ok(Cmd::inside(NETNS, &busybox).args(["wget", "-q", "-O", "-", &url]).run().ok())
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_loses_its_tag_and_keeps_its_port() {
        assert_eq!(repository("10.77.0.1:5000/shim/installer:1"), "10.77.0.1:5000/shim/installer");
        assert_eq!(repository("10.77.0.1:5000/shim/installer"), "10.77.0.1:5000/shim/installer");
    }

    #[test]
    fn archives_are_told_apart() {
        assert_eq!(format_of_list("blobs/\noci-layout\nindex.json\nmanifest.json\n"), Some(Archive::Oci));
        assert_eq!(format_of_list("./manifest.json\n"), Some(Archive::Docker));
        assert_eq!(format_of_list("etc/\n"), None);
    }
}
