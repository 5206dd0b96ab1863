//! A containerd shim that runs WASI preview 1 modules with wasmi.
use anyhow::Result;
use containerd_shim_wasm::{
    sandbox::{Sandbox, context::RuntimeContext},
    shim::{Cli, Shim, Version, version},
};
use wasmi::{Engine, Linker, Module, Store};
use wasmi_wasi::{WasiCtx, WasiCtxBuilder};

struct WasmiShim;

impl Shim for WasmiShim {
    type Sandbox = WasmiSandbox;

    fn name() -> &'static str {
        "wasmi"
    }

    fn version() -> Version {
        version!()
    }
}

#[derive(Default)]
struct WasmiSandbox;

impl Sandbox for WasmiSandbox {
    async fn run_wasi(&self, ctx: &impl RuntimeContext) -> Result<i32> {
        let entry = ctx.entrypoint();
        let engine = Engine::default();
        let module = Module::new(&engine, &entry.source.as_bytes()?[..])?;
        let mut store = Store::new(&engine, wasi(ctx)?);
        let mut linker: Linker<WasiCtx> = Linker::new(&engine);
        wasmi_wasi::add_to_linker(&mut linker, |wasi| wasi)?;
        let instance = linker.instantiate_and_start(&mut store, &module)?;
        let start = instance.get_typed_func::<(), ()>(&store, &entry.func)?;
        match start.call(&mut store, ()) {
            Ok(()) => Ok(0),
            Err(error) => error.i32_exit_status().ok_or_else(|| error.into()),
        }
    }
}

fn wasi(ctx: &impl RuntimeContext) -> Result<WasiCtx> {
    let mut wasi = WasiCtxBuilder::new();
    wasi.inherit_stdio();
    for argument in ctx.args() {
        wasi.arg(argument)?;
    }
    for variable in ctx.envs() {
        let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
        wasi.env(name, value)?;
    }
    Ok(wasi.build())
}

fn main() {
    WasmiShim::run(None);
}
