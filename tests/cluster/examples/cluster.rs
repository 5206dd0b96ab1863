//! `cargo run -p shim-cluster --example cluster -- build|up [NODES]|down|kubectl …|exec NODE …`: the library by hand.

use anyhow::{Context, Result, bail};
use shim_cluster::{Cluster, Paths, Reporter, UpOptions, build, down, install_packages, up};

fn main() -> Result<()> {
    let (paths, report) = (Paths::of_this_workspace(), Reporter::stderr());
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["build"] => {
            install_packages(&report)?;
            build(&paths, &report)
        }
        ["up", rest @ ..] => {
            let nodes = rest.first().map_or(Ok(4), |count| count.parse()).context("NODES is a number")?;
            up(&paths, &UpOptions { nodes, ..UpOptions::default() }, &report).map(drop)
        }
        ["down"] => down(&paths, &report),
        ["kubectl", rest @ ..] => Cluster::open(&paths)?.kubectl(rest).map(|text| print!("{text}")),
        ["exec", node, rest @ ..] => Cluster::open(&paths)?.node(node)?.run(rest).map(|text| print!("{text}")),
        _ => bail!("build | up [NODES] | down | kubectl … | exec NODE …"),
    }
}
