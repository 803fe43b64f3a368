#!/bin/sh
# The end of 'make install': makes the dynamic linker know the new library, or says what is left to do for that, so that a
# program that was linked with it starts: ldconfig.sh LIBDIR SONAME
set -eu
libdir=$1 soname=$2
PATH=$PATH:/usr/sbin:/sbin

if [ -n "${DESTDIR:-}" ]; then
    echo "install: staged in $DESTDIR; run ldconfig where it is unpacked"
    exit 0
fi
if ! command -v ldconfig >/dev/null; then
    echo "install: no ldconfig here; if programs do not find $soname, start them with LD_LIBRARY_PATH=$libdir"
    exit 0
fi

known() { # does the linker's list have the file that was installed?
    ldconfig -p | awk -v name="$soname" '$1 == name { print $NF }' | while read -r path; do
        [ "$(readlink -f "$path")" != "$(readlink -f "$libdir/$soname")" ] || echo yes
    done | grep -q yes
}

# As another user it fails, and the list is as it was.
if ldconfig 2>/dev/null && known; then
    echo "install: ldconfig was run, the dynamic linker knows $libdir/$soname"
elif known; then
    :
elif ldconfig -v -N -X 2>/dev/null | grep -q "^$libdir:"; then
    echo "install: now run 'sudo ldconfig', or programs do not find $soname"
else
    echo "install: the dynamic linker does not look into $libdir: link programs with -Wl,-rpath,$libdir or start them with"
    echo "    LD_LIBRARY_PATH=$libdir; for all users: echo $libdir | sudo tee /etc/ld.so.conf.d/wideout.conf && sudo ldconfig"
fi
