#!/bin/sh
# Workload web: nginx, one worker for each thread, and as many clients over the loopback, in one program.
set -e -o pipefail
case $1 in
    prepare)
        mkdir -p /var/log/nginx /var/lib/nginx
        sed -i "s/@THREADS@/$threads/" /loads/nginx.conf
        nginx -c /loads/nginx.conf
        tries=0
        # The small load once: every page is in memory, every worker has worked.
        until load web small "$threads"; do
            tries=$((tries + 1))
            [ $tries -lt 60 ]
            sleep 1
        done
        ;;
    run)
        load web "$size" "$threads"
        ;;
    result)
        sed -n 's/^result=//p' /tmp/log
        ;;
esac
