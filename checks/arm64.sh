#!/bin/sh
# The whole core for arm64, in Debian's Python for arm64 under emulation: the same bits as checks/decide.py expects.
# Debian's packages are unpacked below build/arm64 and nothing is installed. Usage: checks/arm64.sh PYTHON
set -eu
python=$1
here=$(pwd)
there=$here/build/arm64
mkdir -p "$there/lists/partial" "$there/cache/archives/partial" "$there/root" "$there/numpy" "$there/packages"
cd "$there"

# an apt of its own, which knows arm64 only
. /etc/os-release
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $VERSION_CODENAME main" > sources.list
: > status
cat > apt.conf <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
Debug::NoLocking "true";
Dir::State::lists "$there/lists";
Dir::State::status "$there/status";
Dir::Cache "$there/cache";
Dir::Etc::sourcelist "$there/sources.list";
Dir::Etc::sourceparts "/dev/null";
END
if ! [ -e root/done ]; then
    APT_CONFIG=$there/apt.conf apt-get update -qq
    APT_CONFIG=$there/apt.conf apt-get install -y -qq --download-only python3-minimal libpython3-stdlib libpython3-dev libstdc++6 >/dev/null
    for package in cache/archives/*.deb; do dpkg-deb -x "$package" root; done
    touch root/done
fi
interpreter=$(ls root/usr/bin/python3.* | head -n 1)
version=${interpreter##*/python3.}
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest numpy \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --python-version "3.$version" 'numpy>=2.0'
(cd packages && "$python" -m zipfile -e ../numpy/numpy-*.whl .)

# the C code of the build, with the flags of setup.py
rm -rf packages/deferkit
cp -r "$here/src/deferkit" packages/
find packages/deferkit -name '*.so' -delete
for module in learn/core/_core learn/_encoding learn/embed/_passes worlds/_knapsacks serve/http/_json_scan; do
    aarch64-linux-gnu-gcc -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -fPIC -shared -w \
        -DPy_LIMITED_API=0x030B0000 -DNPY_NO_DEPRECATED_API=NPY_2_0_API_VERSION -Werror=implicit-function-declaration \
        -Ipackages/numpy/_core/include "-Iroot/usr/include/python3.$version" -Iroot/usr/include \
        "-I$here/src/deferkit/${module%/*}" "$here/build/cython/src/deferkit/$module.c" -o "packages/deferkit/$module.abi3.so" -lm
done
PYTHONPATH=packages:$here qemu-aarch64-static -L root "$interpreter" -c '
import platform
from checks.decide import EXPECTED, stream_digest
assert stream_digest() == EXPECTED, "other bits than on x86-64"
print(platform.machine(), "decides with the same bits")'
