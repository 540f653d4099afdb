# Written by `deno task link`. Remove this file to undo it.
here=@ROOT@
deno=@DENO@
main=$here/main.ts
mark=--linked
unset INIT_CWD

fail() {
  printf 'Error: %s\n' "$1" >&2
  exit 1
}

[ -f "$main" ] || fail "compy's checkout is no longer in $here: run deno task link where it is now"
if [ ! -x "$deno" ]; then
  found=$(command -v deno) || fail "Deno is neither at $deno nor on the PATH: install it, or run deno task link again"
  deno=$found
  version=$("$deno" -V)
  version=${version#deno }
  minor=${version#*.}
  if [ $((${version%%.*} * 1000 + ${minor%%.*})) -lt @OLDEST@ ]; then
    fail "compy needs Deno @NEEDED@ or newer, and $deno is $version"
  fi
fi
