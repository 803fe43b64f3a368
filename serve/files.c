/* The files that are served: as they were when they were opened, and whether they still are. What is mapped changes
 * with its file, so nothing is answered before its file was looked at once more: who writes changes a file's time first
 * and its bytes then. A time that was set back afterwards is found by the watch, once a second: what tells it, the time
 * of the inode, changes with a rename or a link too, which do no harm. */
#include "server.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TICK_S 0.01 /* of the clock that files have their times from: 1 to 10 ms, as the kernel was built */

static void list(const woi_serve_options *o, const char *files[WOI_FILES])
{
    const char *const all[WOI_FILES] = {o->index, o->net, o->layer, o->bias_path};
    memcpy(files, all, sizeof all);
}

static void describe(const struct stat *about, uint64_t words[WOI_FILE_WORDS])
{
    words[0] = (uint64_t)about->st_dev ^ (uint64_t)about->st_ino << 8;
    words[1] = (uint64_t)about->st_size;
    words[2] = (uint64_t)about->st_mtim.tv_sec;
    words[3] = (uint64_t)about->st_mtim.tv_nsec;
    words[4] = (uint64_t)about->st_ctim.tv_sec;
    words[5] = (uint64_t)about->st_ctim.tv_nsec;
}

woi_file_state woi_files_look(const woi_serve_options *o)
{
    const char *files[WOI_FILES];
    woi_file_state state = {{{0}}};
    struct stat about;
    list(o, files);
    for (size_t i = 0; i < WOI_FILES; i++)
        if (files[i] && stat(files[i], &about) == 0) describe(&about, state.words[i]);
    return state;
}

woi_file_state woi_files_settled(const woi_serve_options *o)
{
    const woi_file_state state = woi_files_look(o);
    const double now = woi_clock(CLOCK_REALTIME);
    double newest = 0;
    for (size_t i = 0; i < WOI_FILES; i++) {
        const double time = (double)state.words[i][2] + 1e-9 * (double)state.words[i][3];
        if (time > newest) newest = time;
    }
    /* A write in the same tick would leave the time as it is. */
    if (now - newest < 2 * TICK_S) nanosleep(&(struct timespec){.tv_nsec = (long)(TICK_S * 1e9)}, NULL);
    return state;
}

void woi_files_hold(woi_snapshot *s, const woi_serve_options *o)
{
    const char *files[WOI_FILES];
    list(o, files);
    for (size_t i = 0; i < WOI_FILES; i++) {
        struct stat about;
        uint64_t words[WOI_FILE_WORDS];
        s->held[i] = files[i] ? open(files[i], O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) : -1;
        if (s->held[i] < 0 || fstat(s->held[i], &about) != 0) continue;
        describe(&about, words);
        if (words[0] != s->files.words[i][0]) memcpy(s->files.words[i], words, sizeof words); /* replaced meanwhile */
    }
}

void woi_files_let_go(woi_snapshot *s)
{
    for (size_t i = 0; i < WOI_FILES; i++)
        if (s->held[i] >= 0) close(s->held[i]);
}

bool woi_snapshot_whole(woi_snapshot *s)
{
    if (woi_guard_met()) atomic_store(&s->damaged, true);
    for (size_t i = 0; i < WOI_FILES && !atomic_load(&s->damaged); i++) {
        struct stat about;
        uint64_t words[WOI_FILE_WORDS];
        if (s->held[i] < 0 || fstat(s->held[i], &about) != 0) continue;
        describe(&about, words);
        if (memcmp(words, s->files.words[i], WOI_CONTENT_WORDS * sizeof *words) != 0) atomic_store(&s->damaged, true);
    }
    return !atomic_load(&s->damaged);
}
