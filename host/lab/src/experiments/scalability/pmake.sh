#!/bin/sh
# The work of experiment `scalability`: independent compilations at the same time, each by a make of its own in a folder of
# its own, of sources so short that most of it is starting programs, reading headers and writing files. Everything is in memory.
# The jobs' folders are in folder `place`, the sources in folder `from`.
set -e -o pipefail
all="crctable randtable mk251 spewG unzcrash huffman"
chosen=$(echo $all | cut -d ' ' -f "1-$sources")
job() {
    mkdir "$place/job$1"
    cd "$place/job$1"
    for name in $chosen; do
        cp "$from/$name.c" .
    done
    cp "$from/bzlib.h" "$from/bzlib_private.h" /tmp/Makefile .
    make
}
case $1 in
    prepare)
        cat >/tmp/Makefile <<'RULES'
all.a: $(patsubst %.c,%.o,$(sort $(wildcard *.c)))
	ar -Drc $@ $^
%.o: %.c
	gcc -O1 -c -o $@ $<
RULES
        # What only a first run does is done.
        job 0
        rm -r "$place/job0"
        ;;
    run)
        for number in $(seq 1 "$jobs"); do
            (job "$number" && touch "/tmp/done$number") &
        done
        wait
        for number in $(seq 1 "$jobs"); do
            [ -e "/tmp/done$number" ]
        done
        ;;
    result)
        for number in $(seq 1 "$jobs"); do
            # A missing or empty file would have a checksum, too.
            [ -s "$place/job$number/all.a" ]
            cmp "$place/job$number/all.a" "$place/job1/all.a" >&2
        done
        sha256sum <"$place/job1/all.a" | cut -c 1-16
        ;;
esac
