//! The product on the real cluster: what the demo, the end-to-end tests and the benchmarks share.
//!
//! [`Lab::start`] builds what is not built yet, boots the test cluster if it does not run, loads the image and serves
//! the artifacts. Everything that it does twice is cheap the second time.
mod artifacts;
mod build;
mod lab;
mod leader;
mod manifest;
mod tool;

pub use artifacts::{Artifact, Artifacts, Packing};
pub use build::{Product, Profile, image_context, product, wasmi_shim};
pub use lab::{Answer, Lab, ROLLOUT};
pub use leader::{CutOff, Leader};
pub use manifest::{ShimManifest, wasm_pod};
pub use shim_cluster::{Paths, Reporter};
pub use tool::{cargo, target_dir, workspace};
