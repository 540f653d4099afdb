#!/bin/sh
# Starts compy with what the command may do, and no more. Words in front of the command that begin with --allow- go to Deno,
# in place of what the command has of that kind:
#   compy --allow-write=/srv/compy serve --data /srv/compy
set -eu
# PLACES

own=0
write=
command=
for word; do
  case $word in
    --allow-write | --allow-write=*) write=given ;;
    --allow-*) ;;
    *)
      command=$word
      break
      ;;
  esac
  own=$((own + 1))
done

# What comes before the program, the program, what comes after it.
at=0
for word; do
  if [ "$at" -eq "$own" ]; then set -- "$@" "$main" $mark; fi
  set -- "$@" "$word"
  at=$((at + 1))
done
shift "$at"
if [ "$at" -eq "$own" ]; then set -- "$@" "$main" $mark; fi

# Set of permissions, folders to write to, then Deno's flags, the program and its words.
start() {
  permissions=$1
  folders=$2
  shift 2
  if [ -z "$write" ] && [ -n "$folders" ]; then set -- "--allow-write=$folders" "$@"; fi
  export DENO_NO_PACKAGE_JSON=1 DENO_NO_UPDATE_CHECK=1
  exec "$deno" run -q --no-prompt --config "$here/deno.json" "-P=$permissions" "$@"
}

case $command in
# COMMANDS
esac
