/* The macros that SPLASH-2 programs are written in, for SPLASHOS and for Linux with POSIX threads: the same source runs on both.
 *
 * A program includes this file. One of its files has MAIN_ENV, outside of all functions, and
 *
 *     int main(int argc, char **argv) { MAIN_INITENV(,) ... CREATE(worker) ... worker(); WAIT_FOR_END(n - 1) ... MAIN_END }
 *
 * On Linux (or any system with POSIX threads): cc program.c -lpthread. For SPLASHOS: define SPLASHOS, compile freestanding for rv64gc,
 * and link with libsplashos.a and link.ld. There is one thread for each vCPU, main's among them; CREATE ends the program if there is
 * no vCPU left. All memory is shared and G_MALLOC gives zeros, touched first by whoever uses it.
 */
#ifndef SPLASH_ANL_H
#define SPLASH_ANL_H

#include <stddef.h>

#ifdef SPLASHOS

typedef struct { unsigned state; } splash_lock_t;
typedef struct { unsigned arrived, round; } splash_barrier_t;

int splash_create(void (*function)(void));
void splash_wait_for_end(void);
void splash_lock(splash_lock_t *lock);
void splash_unlock(splash_lock_t *lock);
void splash_barrier(splash_barrier_t *barrier, size_t threads);
void splash_flag_set(unsigned *flag, unsigned value);
void splash_flag_wait(unsigned *flag);
long splash_next(size_t *counter, size_t last);
void *splash_alloc(size_t bytes);
void splash_free(void *place);
unsigned long long splash_now_ns(void);
size_t splash_threads(void);
void splash_write(const char *text, size_t bytes);

/* The system calls this on the first vCPU; 0 is success. */
#define MAIN_ENV \
    int main(int argc, char **argv); \
    int splash_program(void) { static char name[] = "program"; static char *words[] = {name, 0}; return main(1, words); }

#else /* POSIX threads */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SPLASH_MOST 64

typedef pthread_mutex_t splash_lock_t;
typedef struct { pthread_mutex_t lock; pthread_cond_t all; unsigned arrived, round; } splash_barrier_t;

extern pthread_t splash_made[SPLASH_MOST];
extern int splash_count;
extern pthread_mutex_t splash_mutex;
extern pthread_cond_t splash_changed;

#define MAIN_ENV \
    pthread_t splash_made[SPLASH_MOST]; \
    int splash_count; \
    pthread_mutex_t splash_mutex = PTHREAD_MUTEX_INITIALIZER; \
    pthread_cond_t splash_changed = PTHREAD_COND_INITIALIZER;

static void *splash_thread(void *function) { (*(void (**)(void))function)(); return 0; }
static inline int splash_create(void (*function)(void)) {
    static void (*functions[SPLASH_MOST])(void);
    if (splash_count == SPLASH_MOST) return -1;
    functions[splash_count] = function;
    if (pthread_create(&splash_made[splash_count], 0, splash_thread, &functions[splash_count])) return -1;
    splash_count++;
    return 0;
}
static inline void splash_wait_for_end(void) { while (splash_count) pthread_join(splash_made[--splash_count], 0); }
static inline void splash_lock(splash_lock_t *lock) { pthread_mutex_lock(lock); }
static inline void splash_unlock(splash_lock_t *lock) { pthread_mutex_unlock(lock); }
static inline void splash_barrier(splash_barrier_t *barrier, size_t threads) {
    pthread_mutex_lock(&barrier->lock);
    unsigned round = barrier->round;
    if (++barrier->arrived == threads) { barrier->arrived = 0; barrier->round++; pthread_cond_broadcast(&barrier->all); }
    while (round == barrier->round) pthread_cond_wait(&barrier->all, &barrier->lock);
    pthread_mutex_unlock(&barrier->lock);
}
static inline void splash_flag_set(unsigned *flag, unsigned value) {
    pthread_mutex_lock(&splash_mutex);
    *flag = value;
    pthread_cond_broadcast(&splash_changed);
    pthread_mutex_unlock(&splash_mutex);
}
static inline void splash_flag_wait(unsigned *flag) {
    pthread_mutex_lock(&splash_mutex);
    while (!*flag) pthread_cond_wait(&splash_changed, &splash_mutex);
    pthread_mutex_unlock(&splash_mutex);
}
static inline long splash_next(size_t *counter, size_t last) {
    size_t number = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
    return number <= last ? (long)number : -1;
}
static inline void *splash_alloc(size_t bytes) { return calloc(1, bytes); }
static inline void splash_free(void *place) { free(place); }
static inline unsigned long long splash_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}
static inline size_t splash_threads(void) { return 4; }
static inline void splash_write(const char *text, size_t bytes) { fwrite(text, 1, bytes, stdout); }

#endif

/* Locks and barriers are made before they are used; zeros are right for SPLASHOS, and POSIX is asked. */
#ifdef SPLASHOS
#define LOCKINIT(l) do { (l).state = 0; } while (0);
#define BARINIT(b, n) do { (b).arrived = (b).round = 0; } while (0);
#else
#define LOCKINIT(l) pthread_mutex_init(&(l), 0);
#define BARINIT(b, n) do { pthread_mutex_init(&(b).lock, 0); pthread_cond_init(&(b).all, 0); \
    (b).arrived = (b).round = 0; } while (0);
#endif

#define EXTERN_ENV
#define MAIN_INITENV(...)
#define MAIN_END return 0;
#define CREATE(function) do { if (splash_create(function)) return 1; } while (0);
#define WAIT_FOR_END(n) splash_wait_for_end();

#define LOCKDEC(l) splash_lock_t l;
#define LOCK(l) splash_lock(&(l));
#define UNLOCK(l) splash_unlock(&(l));
#define ALOCKDEC(l, n) splash_lock_t l[n];
#define ALOCKINIT(l, n) do { for (int i_ = 0; i_ < (int)(n); i_++) { LOCKINIT((l)[i_]) } } while (0);
#define ALOCK(l, i) splash_lock(&(l)[i]);
#define AULOCK(l, i) splash_unlock(&(l)[i]);

#define BARDEC(b) splash_barrier_t b;
#define BARRIER(b, n) splash_barrier(&(b), n);

#define PAUSEDEC(p) unsigned p;
#define PAUSEINIT(p) (p) = 0;
#define SETPAUSE(p) splash_flag_set(&(p), 1);
#define CLEARPAUSE(p) splash_flag_set(&(p), 0);
#define WAITPAUSE(p) splash_flag_wait(&(p));

#define GSDEC(g) size_t g;
#define GSINIT(g) (g) = 0;
#define GETSUB(g, subscript, last, n) (subscript) = splash_next(&(g), last);

#define G_MALLOC(bytes) splash_alloc(bytes)
#define G_FREE(place) splash_free(place)
#define CLOCK(microseconds) (microseconds) = splash_now_ns() / 1000;

#endif
