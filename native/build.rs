//! Stores a stamp in the module: a hash of its sources. `fencepost` refuses a module with another stamp.
//!
//! FNV-1a with 64 bits over each file's name, its length and its bytes. tools/native_stamp.py computes the same.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn fnv(mut hash: u64, bytes: &[u8]) -> u64 {
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}

fn sources(root: &Path) -> Vec<String> {
    let mut names = vec!["Cargo.lock".to_string(), "Cargo.toml".to_string(), "build.rs".to_string()];
    for entry in fs::read_dir(root.join("src")).expect("the crate has a folder src") {
        let name = entry.expect("the folder src can be read").file_name();
        names.push(format!("src/{}", name.to_string_lossy()));
    }
    names.sort();
    names
}

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    println!("cargo:rerun-if-changed=src");
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for name in sources(&root) {
        println!("cargo:rerun-if-changed={name}");
        let bytes = fs::read(root.join(&name)).expect("a source of the crate can be read");
        hash = fnv(hash, name.as_bytes());
        hash = fnv(hash, &(bytes.len() as u64).to_le_bytes());
        hash = fnv(hash, &bytes);
    }
    println!("cargo:rustc-env=FENCEPOST_STAMP={hash:016x}");
}
