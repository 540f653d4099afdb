# Sourced in rust-kernels by what builds the crate for aarch64: compiler, linker, qemu; sets `target`.
target=aarch64-unknown-linux-gnu
packages=(qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross rustc-web libstd-rust-web-dev libstd-rust-web-dev:arm64)

# A rustup toolchain with the target is taken as it is; otherwise Debian's compiler, which has a standard library for it.
if [ -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
  packages=(qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
else
  export RUSTC=/usr/bin/rustc
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "Cannot build for aarch64: these Debian packages are missing: ${missing[*]}" >&2
    echo "Install them (libstd-rust-web-dev:arm64 needs: dpkg --add-architecture arm64), or run this as root on Debian." >&2
    exit 1
  fi
  dpkg --add-architecture arm64
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/neon"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static"
