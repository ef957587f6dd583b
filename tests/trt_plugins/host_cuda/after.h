// The scheduler, and the launch. DECODE is the kernel's call, its arguments out of `arguments`.

static const long long* arguments;
static jmp_buf scheduler;

// A context is only entered once: changing to it asks the kernel for the signals' mask each time, jumps do not.
void others_go_on() {
    if (!_setjmp(fiber->rest)) _longjmp(scheduler, 1);
}

static void go_on() {
    if (_setjmp(scheduler)) return;
    if (fiber->begun) _longjmp(fiber->rest, 1);
    fiber->begun = true;
    setcontext(&fiber->start);
}

static void run_fiber() {
    DECODE;
    fiber->done = true;
    --fiber->block->running;
    others_go_on();
}

// Runs all blocks to their end, or for so many rounds. `order`: 0 as they are numbered, 1 the other way round, above
// that at random, where warps and whole blocks stand still for a while. Returns 0; 1 where some did not end; 2
// where a block wrote behind its shared memory.
extern "C" int launch(int blocks, int threads, int shared_bytes, const long long* given, int order, long most_rounds) {
    constexpr size_t STACK = 1 << 15, BEHIND = 4096;
    arguments = given;
    gridDim.x = blocks;
    std::vector<HostBlock> all(blocks);
    std::vector<Fiber> fibers((size_t)blocks * threads);
    std::vector<unsigned char> stacks(fibers.size() * STACK);
    for (int i = 0; i < blocks; ++i) {
        all[i].running = threads;
        all[i].warps.resize(threads / 32);
        all[i].shared.assign(shared_bytes + BEHIND + 16, 0xff);  // all NaN
    }
    for (size_t i = 0; i < fibers.size(); ++i) {
        Fiber& each = fibers[i];
        each.block_index = i / threads;
        each.thread = i % threads;
        each.block = &all[each.block_index];
        getcontext(&each.start);
        each.start.uc_stack.ss_sp = &stacks[i * STACK];
        each.start.uc_stack.ss_size = STACK;
        each.start.uc_link = nullptr;
        makecontext(&each.start, run_fiber, 0);
    }
    const int warps = fibers.size() / 32;
    std::vector<int> turns(warps);
    std::vector<long> still_until(warps, 0);
    for (int i = 0; i < warps; ++i) turns[i] = order == 1 ? warps - 1 - i : i;
    std::mt19937 random(order);
    size_t left = fibers.size();
    for (long round = 0; left && round < most_rounds; ++round) {
        left = 0;
        if (order > 1) {
            std::shuffle(turns.begin(), turns.end(), random);
            if (random() % 4 == 0) still_until[random() % warps] = round + random() % 100;
            if (random() % 16 == 0) {
                const int first = random() % blocks * (threads / 32);
                const long until = round + random() % 100;
                std::fill_n(still_until.begin() + first, threads / 32, until);
            }
        }
        for (const int warp : turns)
            for (int i = warp * 32; i < warp * 32 + 32; ++i) {
                fiber = &fibers[i];
                if (fiber->done) continue;
                ++left;
                if (still_until[warp] > round || (fiber->awaited && *fiber->awaited == fiber->unchanged)) continue;
                go_on();
            }
    }
    for (const HostBlock& block : all) {
        const size_t start = (16 - (uintptr_t)block.shared.data() % 16) % 16;
        for (size_t i = 0; i < BEHIND; ++i)
            if (block.shared[start + shared_bytes + i] != 0xff) return 2;
    }
    return left != 0;
}

extern "C" int exchange_bytes() { return sizeof(Exchange); }
