// The scheduler of the emulation: each thread of a block is a fiber on a stack of its own.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <sstream>
#include <vector>

#include <ucontext.h>

#include "cuda_emulation.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulation {
namespace {

constexpr size_t kStackBytes = 1 << 16;
constexpr int kMaxThreads = 1024;
constexpr int kDefaultSharedBytes = 48 << 10;   // what a launch gets unasked, on every GPU
constexpr int kLargestSharedBytes = 227 << 10;  // and asked for, on sm_90

enum State { kReady, kAtBarrier, kAtWarpOperation, kFinished };

struct Thread {
  ucontext_t context;
  State state;
  Site site;
  unsigned mask;
  uint64_t given;
  unsigned present;
  uint64_t received[warpSize];
};

struct Block {
  std::vector<Thread> threads;
  std::vector<int> order;
  int current = 0;
  std::function<void()> body;
  std::exception_ptr error;
  ucontext_t scheduler;
  std::unique_ptr<void, void (*)(void*)> shared{nullptr, std::free};
};

enum Order { kForward, kBackward, kShuffled };
Order order = kForward;

std::mutex one_launch;
Block block;
std::map<const void*, int> shared_limits;
const std::unique_ptr<char[]> stacks(new char[kStackBytes * kMaxThreads]);

// AddressSanitizer wants to know which stack is in use.
#if defined(__SANITIZE_ADDRESS__)
void* scheduler_fake_stack;
const void* scheduler_stack;
size_t scheduler_stack_bytes;
void enter(int thread) {
  __sanitizer_start_switch_fiber(&scheduler_fake_stack, stacks.get() + thread * kStackBytes, kStackBytes);
}
void entered() { __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes); }
void leave() { __sanitizer_start_switch_fiber(nullptr, scheduler_stack, scheduler_stack_bytes); }
void left() { __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr); }
#else
void enter(int) {}
void entered() {}
void leave() {}
void left() {}
#endif

std::string place(uint3 at) {
  std::ostringstream text;
  text << "(" << at.x << "," << at.y << "," << at.z << ")";
  return text.str();
}

uint3 index_of(int thread) {
  const unsigned t = thread, x = blockDim.x, y = blockDim.y;
  return {t % x, t / x % y, t / (x * y)};
}

std::string describe(int number) {
  const Thread& thread = block.threads[number];
  std::ostringstream text;
  text << "thread " << place(index_of(number));
  if (thread.state == kFinished) {
    text << " has finished";
  } else if (thread.state == kReady) {
    text << " runs on";
  } else {
    text << " waits at " << thread.site.name << " (" << thread.site.file << ":" << thread.site.line;
    if (thread.state == kAtWarpOperation) text << ", mask 0x" << std::hex << thread.mask;
    text << ")";
  }
  return text.str();
}

bool same_site(const Thread& a, const Thread& b) {
  return a.state == b.state && a.site.line == b.site.line && std::strcmp(a.site.file, b.site.file) == 0 &&
         std::strcmp(a.site.name, b.site.name) == 0 && (a.state == kAtBarrier || a.mask == b.mask);
}

// No thread can run on: tell two that wait for each other.
[[noreturn]] void fail_divergent() {
  const auto& threads = block.threads;
  const auto stuck = std::find_if(threads.begin(), threads.end(), [](const Thread& t) { return t.state != kFinished; });
  const int waiting = stuck - threads.begin();
  const bool at_barrier = threads[waiting].state == kAtBarrier;
  const int first = at_barrier ? 0 : waiting / warpSize * warpSize;
  const int end = at_barrier ? threads.size() : std::min<int>(threads.size(), first + warpSize);
  int other = first;
  while (other < end && (other == waiting || same_site(threads[waiting], threads[other]))) ++other;
  throw std::runtime_error(std::string("divergent ") + (at_barrier ? "barrier" : "warp operation") + " in block " +
                           place(blockIdx) + ": " + describe(waiting) + ", but " +
                           (other < end ? describe(other) : std::string("the lanes of its mask never meet")));
}

void switch_to_scheduler() {
  leave();
  swapcontext(&block.threads[block.current].context, &block.scheduler);
  entered();
}

void thread_main() {
  entered();
  try {
    block.body();
  } catch (...) {
    block.error = std::current_exception();
  }
  block.threads[block.current].state = kFinished;
  leave();
  setcontext(&block.scheduler);
}

void start(int number) {
  Thread& thread = block.threads[number];
  thread.state = kReady;
  getcontext(&thread.context);
  thread.context.uc_stack.ss_sp = stacks.get() + number * kStackBytes;
  thread.context.uc_stack.ss_size = kStackBytes;
  thread.context.uc_link = nullptr;
  makecontext(&thread.context, thread_main, 0);
}

void resume(int number) {
  block.current = number;
  threadIdx = index_of(number);
  enter(number);
  swapcontext(&block.scheduler, &block.threads[number].context);
  left();
}

// A barrier opens when all threads wait at it: the same one.
bool open_barrier() {
  for (const Thread& thread : block.threads) {
    if (!same_site(thread, block.threads[0])) return false;
  }
  if (block.threads[0].state != kAtBarrier) return false;
  for (Thread& thread : block.threads) thread.state = kReady;
  return true;
}

void run_block() {
  for (int number = 0; number < static_cast<int>(block.threads.size()); ++number) start(number);
  while (true) {
    bool progress = false, all_finished = true;
    for (int number : block.order) {
      if (block.threads[number].state == kReady) {
        progress = true;
        resume(number);
        if (block.error) std::rethrow_exception(block.error);
      }
      all_finished = all_finished && block.threads[number].state == kFinished;
    }
    if (all_finished) return;
    if (!progress && !open_barrier()) fail_divergent();
  }
}

void prepare(const cudaLaunchConfig_t& config, const std::function<void()>& thread) {
  gridDim = config.gridDim;
  blockDim = config.blockDim;
  block.body = thread;
  block.error = nullptr;
  block.threads.resize(blockDim.x * blockDim.y * blockDim.z);
  block.order.resize(block.threads.size());
  for (size_t i = 0; i < block.order.size(); ++i) block.order[i] = i;
  if (order == kBackward) std::reverse(block.order.begin(), block.order.end());
  if (order == kShuffled) std::shuffle(block.order.begin(), block.order.end(), std::mt19937(1));
  block.shared.reset(std::aligned_alloc(16, (config.dynamicSmemBytes + 15) / 16 * 16));
}

}  // namespace

int lane() { return block.current % warpSize; }

void* dynamic_shared() { return block.shared.get(); }

void fail(const std::string& what) {
  throw std::runtime_error(what + ", in block " + place(blockIdx) + ", thread " + place(threadIdx));
}

void barrier(Site site) {
  Thread& self = block.threads[block.current];
  self.site = site;
  self.state = kAtBarrier;
  switch_to_scheduler();
}

const uint64_t* meet(unsigned mask, uint64_t given, Site site, unsigned* present) {
  Thread& self = block.threads[block.current];
  if (!(mask >> lane() & 1)) fail(std::string(site.name) + " with a mask that lacks the calling lane");
  self.site = site;
  self.mask = mask;
  self.given = given;
  self.state = kAtWarpOperation;
  const int first = block.current - lane();
  unsigned here = 0;
  for (int other = 0; other < warpSize && first + other < static_cast<int>(block.threads.size()); ++other) {
    const Thread& thread = block.threads[first + other];
    if (!(mask >> other & 1) || thread.state == kFinished) continue;
    if (!same_site(thread, self)) {
      switch_to_scheduler();  // until the last lane comes
      *present = self.present;
      return self.received;
    }
    here |= 1u << other;
  }
  for (int to = 0; to < warpSize; ++to) {
    if (!(here >> to & 1)) continue;
    Thread& thread = block.threads[first + to];
    for (int from = 0; from < warpSize; ++from) {
      if (here >> from & 1) thread.received[from] = block.threads[first + from].given;
    }
    thread.present = here;
    thread.state = kReady;
  }
  *present = here;
  return self.received;
}

cudaError_t allow_shared(const void* kernel, int bytes) {
  if (bytes > kLargestSharedBytes) return cudaErrorInvalidValue;
  shared_limits[kernel] = bytes;
  return cudaSuccess;
}

cudaError_t run(const cudaLaunchConfig_t& config, const void* kernel, const std::function<void()>& thread) {
  const std::lock_guard<std::mutex> lock(one_launch);
  const dim3 grid = config.gridDim, size = config.blockDim;
  const uint64_t threads = static_cast<uint64_t>(size.x) * size.y * size.z;
  if (threads == 0 || threads > kMaxThreads || size.z > 64) return cudaErrorInvalidConfiguration;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaErrorInvalidConfiguration;
  if (grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535) return cudaErrorInvalidConfiguration;
  const auto limit = shared_limits.find(kernel);
  const size_t allowed = limit == shared_limits.end() ? kDefaultSharedBytes : limit->second;
  if (config.dynamicSmemBytes > allowed) return cudaErrorInvalidValue;
  prepare(config, thread);
  const uint64_t blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t number = order == kBackward ? blocks - 1 - i : i;
    blockIdx = {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
                static_cast<unsigned>(number / (static_cast<uint64_t>(grid.x) * grid.y))};
    std::memset(block.shared.get(), 0xFF, config.dynamicSmemBytes);
    run_block();
  }
  return cudaSuccess;
}

}  // namespace emulation

// 0: threads and blocks run in ascending order; 1: descending; 2: threads in a shuffled order.
extern "C" __attribute__((visibility("default"))) void emulation_set_order(int wanted) {
  emulation::order = static_cast<emulation::Order>(wanted);
}
