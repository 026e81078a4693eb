/* Each thread adds up numbers that are handed out one by one; all add to one sum under a lock, twice, between barriers. */
#include "anl.h"

MAIN_ENV

enum { THREADS = 4, LAST = 999 };

static struct shared {
    LOCKDEC(lock)
    ALOCKDEC(locks, 3)
    BARDEC(barrier)
    PAUSEDEC(go)
    GSDEC(next[2])
    unsigned long sum[2], seen[THREADS], parts[3];
    size_t threads;
} *shared;

static void worker(void) {
    WAITPAUSE(shared->go)
    size_t own;
    LOCK(shared->lock)
    own = shared->threads++;
    UNLOCK(shared->lock)
    for (int round = 0; round < 2; round++) {
        unsigned long sum = 0;
        long number;
        for (;;) {
            GETSUB(shared->next[round], number, LAST, THREADS)
            if (number < 0) break;
            sum += number;
            ALOCK(shared->locks, number % 3)
            shared->parts[number % 3] += number;
            AULOCK(shared->locks, number % 3)
        }
        LOCK(shared->lock)
        shared->sum[round] += sum;
        UNLOCK(shared->lock)
        BARRIER(shared->barrier, THREADS)
        shared->seen[own] += shared->sum[round];
        BARRIER(shared->barrier, THREADS)
    }
}

int main(int argc, char **argv) {
    MAIN_INITENV(,)
    unsigned long begin, end;
    CLOCK(begin)
    shared = G_MALLOC(sizeof *shared);
    if (!shared) return 2;
    LOCKINIT(shared->lock)
    ALOCKINIT(shared->locks, 3)
    BARINIT(shared->barrier, THREADS)
    PAUSEINIT(shared->go)
    GSINIT(shared->next[0])
    GSINIT(shared->next[1])
    for (int thread = 1; thread < THREADS; thread++) { CREATE(worker) }
    SETPAUSE(shared->go)
    worker();
    WAIT_FOR_END(THREADS - 1)
    CLOCK(end)
    for (int thread = 0; thread < THREADS; thread++) {
        if (shared->seen[thread] != 2ul * LAST * (LAST + 1) / 2) return 3;
    }
    if (shared->parts[0] + shared->parts[1] + shared->parts[2] != 1ul * LAST * (LAST + 1) || end < begin) return 4;
    G_FREE(shared);
    splash_write("sums are right\n", 15);
    MAIN_END
}
