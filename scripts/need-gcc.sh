#!/usr/bin/env bash
# Makes sure that Go's race detector has the C compiler it needs: silent when there is one, installs
# gcc as root on Debian and its relatives, and says what to install anywhere else.
set -euo pipefail
# shellcheck source=scripts/lib/install.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/install.sh"

# compiles COMMAND...: whether COMMAND compiles a program that includes the C library.
compiles() {
  command -v "$1" >/dev/null &&
    printf '#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n' |
    "$@" -x c -o /dev/null - 2>/dev/null
}

# The compiler Go calls: $CC, which may carry flags, or the toolchain's default, which is gcc or clang.
read -r -a cc <<<"$(go env CC)"
if compiles "${cc[@]}"; then
  exit 0
fi
if [[ ${cc[*]} == gcc ]] && can_install; then
  say "no C compiler found, installing gcc and libc6-dev"
  apt_install gcc libc6-dev
  compiles gcc && exit 0
fi
say "go test -race needs a C compiler, and \"${cc[*]}\" does not work here."
for other in gcc clang cc; do
  if compiles "$other"; then
    say "\"$other\" does: set CC=$other"
    exit 1
  fi
done
say "  Debian, Ubuntu: sudo apt-get install gcc libc6-dev"
say "  Fedora:         sudo dnf install gcc glibc-devel"
say "  macOS:          xcode-select --install"
exit 1
