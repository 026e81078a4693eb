#!/bin/bash
# Run once, on the plain emulated machine, when the image is built: the reference result, and how long a boot takes.
systemd-analyze time >/dev/ttyS0 2>&1
systemd-analyze blame --no-pager 2>&1 | head -n 15 >/dev/ttyS0
exec mirrorball-build >/dev/ttyS0 2>&1
