//! Start-up of the plugin, beside kubectl.
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use shim_e2e::{Lab, Paths};

use super::{median, timed};

/// Commands are timed this often.
const STARTS: usize = 21;

pub(super) fn run(lab: &Lab) -> Result<()> {
    let kube = Paths::of_this_workspace().kube();
    let command = |program: &std::path::Path, args: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("KUBECONFIG", lab.cluster.loopback_kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    let pairs: [(&str, &[&str], &[&str]); 2] = [
        ("version --client", &["version", "--client"], &["kubectl", "version", "--client"]),
        ("status, and kubectl get shims", &["status"], &["kubectl", "get", "shims"]),
    ];
    for (what, ours, theirs) in pairs {
        let (mut us, mut them) = (Vec::new(), Vec::new());
        for _ in 0..STARTS {
            us.push(timed(|| succeed(command(&lab.product.plugin, ours)))?);
            them.push(timed(|| succeed(command(&kube, theirs)))?);
        }
        let (us, them) = (median(&mut us).as_secs_f64(), median(&mut them).as_secs_f64());
        println!("| {what} | {:.0} ms | {:.0} ms | {:.2} |", us * 1e3, them * 1e3, us / them);
    }
    Ok(())
}

fn succeed(mut command: Command) -> Result<()> {
    ensure!(command.status()?.success(), "{command:?} failed");
    Ok(())
}
