#!/bin/sh
# The work of experiment `scalability`: independent compilations at the same time, each by a make of its own in a folder of
# its own, of sources so short that most of it is starting programs, reading headers and writing files. Everything is in memory.
set -e -o pipefail
all="crctable randtable mk251 spewG unzcrash huffman"
chosen=$(echo $all | cut -d ' ' -f "1-$sources")
job() {
    mkdir "/tmp/job$1"
    cd "/tmp/job$1"
    for name in $chosen; do
        cp "/usr/src/bzip2/$name.c" .
    done
    cp /usr/src/bzip2/bzlib.h /usr/src/bzip2/bzlib_private.h /tmp/Makefile .
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
        rm -r /tmp/job0
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
            [ -s "/tmp/job$number/all.a" ]
            cmp "/tmp/job$number/all.a" /tmp/job1/all.a >&2
        done
        sha256sum </tmp/job1/all.a | cut -c 1-16
        ;;
esac
