#!/bin/sh
# Workload database: decision-support queries, in the manner of TPC-D, to PostgreSQL on a warm cache: everything lies in
# memory, and each query ran once before. As many clients as threads, each asks all queries.
set -e -o pipefail
. /loads/database.lib
case $1 in
    prepare)
        start_server
        for query in /loads/database.queries/*; do
            ask "$size" <"$query"
        done
        ;;
    run)
        for client in $(seq 1 "$threads"); do
            # Each begins with another query, so that they do not all do the same at once.
            (
                cd /loads/database.queries
                set -- *
                count=$#
                for step in $(seq 1 "$count"); do
                    index=$(((client + step) % count + 1))
                    eval "query=\${$index}"
                    ask "$size" <"$query" >"/tmp/answer.$client.$query"
                done
                touch "/tmp/answered.$client"
            ) &
        done
        wait
        for client in $(seq 1 "$threads"); do
            [ -e "/tmp/answered.$client" ]
        done
        ;;
    result)
        for client in $(seq 1 "$threads"); do
            for query in /loads/database.queries/*; do
                answer=/tmp/answer.$client.${query##*/}
                [ -s "$answer" ]
                cmp "$answer" "/tmp/answer.1.${query##*/}"
            done
        done
        cat /tmp/answer.1.* | sha256sum | cut -c 1-16
        ;;
esac
