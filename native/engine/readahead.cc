#include "readahead.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <map>
#include <numeric>

namespace fl {
namespace {

constexpr std::uint64_t kLongest = 1 << 20;  // neighbours are read together up to this size
constexpr std::uint64_t kGap = 8 << 10;      // what may lie between neighbours: less costs nothing to read along
constexpr std::size_t kOpenFiles = 128;      // twice as many while all are being read from
constexpr std::uint64_t kChunk = 2 << 20;     // populated at once: one huge page, where the kernel makes them
constexpr unsigned kPopulating = 4;          // threads that do so
constexpr std::size_t kLooks = 16;           // ranges looked at to see whether a batch is in memory
constexpr std::size_t kLongestStreak = 6;    // then every 2^6th batch is looked at

std::uint64_t now() {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::steady_clock::now().time_since_epoch())
                                          .count());
}

// What offsets and sizes of direct reads must be multiples of.
std::uint64_t direct_alignment(int fd) {
#ifdef STATX_DIOALIGN
    struct statx found {};
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) == 0 && (found.stx_mask & STATX_DIOALIGN) &&
        found.stx_dio_offset_align && found.stx_dio_mem_align <= Arena::kGrain)
        return std::max<std::uint64_t>(found.stx_dio_offset_align, 512);
#else
    (void)fd;
#endif
    return 4096;
}

}  // namespace

// A run of bytes of a file that is in memory or on its way there.
struct ReadAhead::Segment : Read {
    File* of = nullptr;
    std::size_t holders = 0;
    bool over = false;
    std::vector<Loan*> waiters;
    std::list<Segment*>::iterator place;  // in idle_, while nobody holds it

    std::uint64_t end() const { return offset + size; }
};

struct ReadAhead::File {
    FileName name;
    int fd = -1;
    int plain = -1;  // for looking whether bytes are cached, where the kernel does not tell strangers by mincore
    bool hopeless = false;
    bool trusted = false;
    std::uint64_t unit = 512;
    std::size_t reading = 0;
    std::uint64_t used = 0;
    std::vector<bool> populated;  // by chunk
    std::map<std::uint64_t, std::unique_ptr<Segment>> segments;  // by where they begin; none overlap

    // The segment that reaches behind `at`, or the first after it.
    auto from(std::uint64_t at) {
        auto found = segments.upper_bound(at);
        if (found != segments.begin() && std::prev(found)->second->end() > at) --found;
        return found;
    }
};

ReadAhead::Loan::~Loan() {
    if (owner_) owner_->release(*this);
}

const std::uint8_t* ReadAhead::Loan::bytes(std::size_t range) {
    const auto& part = parts_[range];
    const auto& wanted = ranges_[range];
    for (std::size_t i = part.first; i < part.first + part.count; ++i) {
        const auto& segment = *segments_[i];
        if (segment.error == EINVAL || segment.error == EOPNOTSUPP) return nullptr;  // no direct reads here after all
        if (segment.error) throw Failure("io", std::string("reading failed: ") + std::strerror(segment.error));
        // Short reads are left to the mapping, which knows whether the file became shorter.
        if (segment.offset + segment.done < std::min(segment.end(), wanted.begin + wanted.size)) return nullptr;
    }
    if (part.count == 0) return nullptr;
    if (part.count == 1) return segments_[part.first]->to + (wanted.begin - segments_[part.first]->offset);
    auto whole = std::make_unique_for_overwrite<std::uint8_t[]>(wanted.size);
    for (std::size_t i = part.first; i < part.first + part.count; ++i) {
        const auto& segment = *segments_[i];
        const auto begin = std::max(segment.offset, wanted.begin);
        const auto end = std::min(segment.end(), wanted.begin + wanted.size);
        std::memcpy(whole.get() + (begin - wanted.begin), segment.to + (begin - segment.offset), end - begin);
    }
    joined_.push_back(std::move(whole));
    return joined_.back().get();
}

ReadAhead::ReadAhead(ReadOptions options) : options_(options) {}

ReadAhead::~ReadAhead() { stop(); }

std::size_t ReadAhead::add_file(FileName name) {
    auto file = std::make_unique<File>();
    struct stat status {};
    if (stat(name.path.c_str(), &status) == 0)
        file->trusted = geteuid() == 0 || status.st_uid == geteuid() || access(name.path.c_str(), W_OK) == 0;
    file->name = std::move(name);
    if (options_.mode == ReadMode::populate) {
        file->populated.resize((file->name.mapped.size() + kChunk - 1) / kChunk);
        untouched_ += file->populated.size();
    }
    std::lock_guard lock(mutex_);
    files_.push_back(std::move(file));
    return files_.size() - 1;
}

bool ReadAhead::open(File& file) {
    file.used = ++clock_;
    if (file.fd >= 0) return true;
    if (file.hopeless) return false;
    if (open_files_ >= kOpenFiles) {
        File* oldest = nullptr;
        for (auto& other : files_)
            if (other->fd >= 0 && !other->reading && (!oldest || other->used < oldest->used)) oldest = other.get();
        if (oldest)
            close(*oldest);
        else if (open_files_ >= 2 * kOpenFiles)
            return false;
    }
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    file.fd = ::open(file.name.path.c_str(), flags | O_DIRECT);
    const bool direct = file.fd >= 0;
    if (!direct) file.fd = ::open(file.name.path.c_str(), flags);  // some file systems have no direct reads
    struct stat status {};
    if (file.fd >= 0) ++open_files_;
    if (file.fd < 0 || fstat(file.fd, &status) != 0 || status.st_dev != file.name.device ||
        status.st_ino != file.name.inode) {
        close(file);
        file.hopeless = true;
        return false;
    }
    file.unit = std::max(options_.unit, direct ? direct_alignment(file.fd) : 512);
    return true;
}

void ReadAhead::close(File& file) {
    if (file.plain >= 0) ::close(file.plain);
    file.plain = -1;
    if (file.fd < 0) return;
    ::close(file.fd);
    file.fd = -1;
    --open_files_;
}

bool ReadAhead::open_queue() {
    if (queue_ || hopeless_) return queue_ != nullptr;
    try {
        if (options_.mode == ReadMode::populate) {
            queue_ = make_pread_pool(kPopulating, [](Read& read) { delete &read; });
            return true;
        }
        arena_ = std::make_unique<Arena>(options_.memory);
        const auto done = [this](Read& read) { finished(read); };
        if (options_.mode != ReadMode::pread)
            queue_ = make_uring(options_.depth, {arena_->data(), arena_->capacity()}, done);
        if (!queue_) queue_ = make_pread_pool(options_.threads, done);
    } catch (const std::exception&) {
        hopeless_ = true;
    }
    return queue_ != nullptr;
}

bool ReadAhead::resident(File& file, std::uint64_t at) {
    if (at >= file.name.mapped.size()) return true;
    if (file.trusted) {
        constexpr std::uint64_t page = 4096;
        const auto address = reinterpret_cast<std::uintptr_t>(file.name.mapped.data() + at) / page * page;
        unsigned char there = 1;
        return mincore(reinterpret_cast<void*>(address), 1, &there) != 0 || (there & 1);
    }
    if (file.plain < 0) file.plain = ::open(file.name.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char byte = 0;
    const iovec to{&byte, 1};
    return file.plain < 0 || preadv2(file.plain, &to, 1, static_cast<off_t>(at), RWF_NOWAIT) >= 0 || errno != EAGAIN;
}

bool ReadAhead::looks() {
    if (options_.mode == ReadMode::populate) return untouched_ > 0;
    if (options_.mode != ReadMode::automatic || !streak_ || ++unseen_ >= std::size_t{1} << streak_) {
        unseen_ = 0;
        return true;
    }
    ++counts_.mapped;
    return false;
}

bool ReadAhead::worth_reading(const std::vector<Range>& ranges) {
    if (options_.mode == ReadMode::populate) {
        populate(ranges);
        return false;
    }
    if (options_.mode != ReadMode::automatic) return true;
    std::lock_guard lock(mutex_);
    const auto step = std::max<std::size_t>(ranges.size() / kLooks, 1);
    std::size_t looks = 0, there = 0;
    for (std::size_t i = 0; i < ranges.size(); i += step, ++looks)
        there += resident(*files_[ranges[i].file], ranges[i].begin);
    if (there * 8 < looks * 7) {
        streak_ = 0;
        return true;
    }
    streak_ = std::min<std::size_t>(streak_ + 1, kLongestStreak);
    ++counts_.mapped;
    return false;
}

void ReadAhead::populate(const std::vector<Range>& ranges) {
    std::vector<Read*> reads;
    std::lock_guard lock(mutex_);
    if (!open_queue()) return;
    for (const auto& range : ranges) {
        File& file = *files_[range.file];
        const auto last = std::min<std::uint64_t>((range.begin + range.size - 1) / kChunk + 1, file.populated.size());
        for (auto chunk = range.begin / kChunk; chunk < last; ++chunk) {
            if (file.populated[chunk]) continue;
            file.populated[chunk] = true;
            --untouched_;
            const auto part = file.name.mapped.subspan(chunk * kChunk);
            auto read = std::make_unique<Read>();
            read->populate = part.data();
            read->size = std::min<std::size_t>(part.size(), kChunk);
            counts_.reads += 1;
            counts_.bytes += read->size;
            reads.push_back(read.release());
        }
    }
    if (!reads.empty()) queue_->submit(reads);
}

void ReadAhead::run(Todo& todo) {
    if (!todo.reads.empty()) queue_->submit(todo.reads);
    for (auto& call : todo.calls) call();
}

std::shared_ptr<ReadAhead::Loan> ReadAhead::prepare(std::vector<Range> ranges, std::function<void()> ready) {
    auto loan = std::make_shared<Loan>();
    loan->owner_ = this;
    loan->ranges_ = std::move(ranges);
    loan->ready_ = std::move(ready);
    loan->parts_.resize(loan->ranges_.size());
    std::lock_guard lock(mutex_);
    ++loans_;
    return loan;
}

void ReadAhead::ask(Loan& loan) {
    Todo todo;
    {
        std::lock_guard lock(mutex_);
        loan.asked_at_ = now();
        if (open_queue()) {
            waiting_.push_back(&loan);
            serve(todo);
        } else {
            give_up(loan, todo);
        }
    }
    run(todo);
}

void ReadAhead::hurry(Loan& loan) {
    Todo todo;
    {
        std::lock_guard lock(mutex_);
        if (loan.urgent_) return;
        loan.urgent_ = true;
        if (loan.served_)
            ++running_;
        else
            serve(todo);
    }
    run(todo);
}

// Gives memory to those who wait for it: first to the urgent, then in order. Who can't hope for any goes without.
void ReadAhead::serve(Todo& todo) {
    for (const bool urgent : {true, false}) {
        for (auto next = waiting_.begin(); next != waiting_.end();) {
            Loan& loan = **next;
            if (urgent && !loan.urgent_) {
                ++next;
                continue;
            }
            if (!try_serve(loan, todo)) {
                if (urgent ? running_ : holding_) break;
                give_up(loan, todo);
            }
            next = waiting_.erase(next);
        }
    }
}

bool ReadAhead::try_serve(Loan& loan, Todo& todo) {
    std::vector<std::size_t> order(loan.ranges_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return std::pair(loan.ranges_[a].file, loan.ranges_[a].begin) <
               std::pair(loan.ranges_[b].file, loan.ranges_[b].begin);
    });
    std::vector<Segment*> pins;
    auto pieces = missing_pieces(loan, order, pins);
    const bool found = find_memory(pieces);
    if (found) {
        for (const auto& piece : pieces) {
            auto segment = std::make_unique<Segment>();
            segment->file = piece.file->fd;
            segment->offset = piece.begin;
            segment->size = piece.end - piece.begin;
            segment->to = piece.memory;
            segment->of = piece.file;
            segment->place = idle_.insert(idle_.end(), segment.get());
            todo.reads.push_back(segment.get());
            counts_.reads += 1;
            counts_.bytes += segment->size;
            piece.file->segments.emplace(piece.begin, std::move(segment));
        }
        for (const auto range : order) link(loan, range);
        loan.served_ = true;
        ++holding_;
        running_ += loan.urgent_;
        if (loan.missing_ == 0) complete(loan, todo);
    }
    for (auto* segment : pins) let_go(*segment);
    return found;
}

// The runs of bytes that nobody has yet; what is there already is held by `pins` meanwhile. `order` loses the ranges
// that have to do without.
std::vector<ReadAhead::Piece> ReadAhead::missing_pieces(Loan& loan, std::vector<std::size_t>& order,
                                                        std::vector<Segment*>& pins) {
    std::vector<Piece> pieces;
    std::size_t total = 0;
    const auto hold = [&](Segment& segment) {
        if (segment.holders++ == 0) idle_.erase(segment.place);
        pins.push_back(&segment);
    };
    const auto add = [&](File& file, std::uint64_t begin, std::uint64_t end) {
        if (!pieces.empty()) {
            auto& last = pieces.back();
            if (last.file == &file && begin >= last.begin && begin <= last.end + kGap && end - last.begin <= kLongest) {
                const auto between = file.from(last.end);
                const bool free = between == file.segments.end() || between->second->offset >= begin;
                if (begin <= last.end || free) {
                    total += std::max(end, last.end) - last.end;
                    last.end = std::max(end, last.end);
                    return;
                }
            }
        }
        pieces.push_back({&file, begin, end, nullptr});
        ++file.reading;  // so that it stays open
        total += end - begin;
    };
    std::size_t kept = 0;
    for (const auto range : order) {
        const auto& wanted = loan.ranges_[range];
        File& file = *files_[wanted.file];
        if (!wanted.size) continue;
        const auto unit = file.fd >= 0 || open(file) ? file.unit : 0;
        if (!unit || total + wanted.size + 2 * unit > arena_->capacity() / 2) {
            ++counts_.given_up;
            continue;
        }
        file.used = ++clock_;
        order[kept++] = range;
        auto at = wanted.begin / unit * unit;
        if (!pieces.empty() && pieces.back().file == &file) at = std::max(at, pieces.back().end);
        const auto end = (wanted.begin + wanted.size + unit - 1) / unit * unit;
        for (auto next = file.from(at); at < end; ++next) {
            const bool more = next != file.segments.end() && next->second->offset < end;
            if (!more || at < next->second->offset) add(file, at, more ? next->second->offset : end);
            if (!more) break;
            hold(*next->second);
            at = next->second->end();
        }
    }
    order.resize(kept);
    return pieces;
}

bool ReadAhead::find_memory(std::vector<Piece>& pieces) {
    for (auto& piece : pieces) {
        const auto size = piece.end - piece.begin;
        while (!(piece.memory = arena_->take(size))) {
            // What is still on its way can't be dropped, though nobody holds it.
            const auto idle = std::find_if(idle_.begin(), idle_.end(), [](Segment* one) { return one->over; });
            if (idle == idle_.end()) {
                for (auto& taken : pieces) --taken.file->reading;
                for (auto& taken : pieces)
                    if (taken.memory) arena_->give_back(taken.memory, taken.end - taken.begin);
                return false;
            }
            drop(**idle);
        }
    }
    return true;
}

// Notes which segments hold a range; by now all of it is covered.
void ReadAhead::link(Loan& loan, std::size_t range) {
    const auto& wanted = loan.ranges_[range];
    File& file = *files_[wanted.file];
    auto& part = loan.parts_[range];
    part.first = loan.segments_.size();
    for (auto next = file.from(wanted.begin);
         next != file.segments.end() && next->second->offset < wanted.begin + wanted.size; ++next) {
        Segment& segment = *next->second;
        if (segment.holders++ == 0) idle_.erase(segment.place);
        if (!segment.over && (segment.waiters.empty() || segment.waiters.back() != &loan)) {
            segment.waiters.push_back(&loan);
            ++loan.missing_;
        }
        loan.segments_.push_back(&segment);
        ++part.count;
    }
    counts_.asked += wanted.size;
}

void ReadAhead::give_up(Loan& loan, Todo& todo) {
    counts_.given_up += loan.ranges_.size();
    complete(loan, todo);
}

void ReadAhead::complete(Loan& loan, Todo& todo) {
    counts_.waiting += now() - loan.asked_at_;
    todo.calls.push_back(std::move(loan.ready_));
    loan.ready_ = nullptr;
}

void ReadAhead::finished(Read& read) {
    Todo todo;
    {
        std::lock_guard lock(mutex_);
        auto& segment = static_cast<Segment&>(read);
        segment.over = true;
        --segment.of->reading;
        if (segment.error == EINVAL || segment.error == EOPNOTSUPP) segment.of->hopeless = true;
        for (auto* loan : segment.waiters)
            if (--loan->missing_ == 0) complete(*loan, todo);
        segment.waiters.clear();
        segment.waiters.shrink_to_fit();
        const bool whole = !segment.error;
        if (segment.holders == 0 && !whole) drop(segment);
        if (!waiting_.empty()) serve(todo);
    }
    run(todo);
}

void ReadAhead::release(Loan& loan) {
    Todo todo;
    {
        std::lock_guard lock(mutex_);
        waiting_.remove(&loan);
        for (auto* segment : loan.segments_) {
            std::erase(segment->waiters, &loan);
            let_go(*segment);
        }
        holding_ -= loan.served_;
        running_ -= loan.served_ && loan.urgent_;
        if (!waiting_.empty()) serve(todo);
        if (--loans_ == 0) gone_.notify_all();
    }
    run(todo);
}

void ReadAhead::let_go(Segment& segment) {
    if (--segment.holders) return;
    segment.place = idle_.insert(idle_.end(), &segment);
    if (segment.over && segment.error) drop(segment);
}

void ReadAhead::drop(Segment& segment) {
    idle_.erase(segment.place);
    arena_->give_back(segment.to, segment.size);
    segment.of->segments.erase(segment.offset);
}

void ReadAhead::stop() {
    std::unique_ptr<ReadQueue> ending;
    {
        std::unique_lock lock(mutex_);
        gone_.wait(lock, [&] { return loans_ == 0; });
        ending = std::move(queue_);
    }
    ending.reset();  // without the lock: what is still being read wants it
    std::lock_guard lock(mutex_);
    idle_.clear();
    for (auto& file : files_) {
        file->segments.clear();
        close(*file);
    }
    arena_.reset();
    streak_ = 0;
}

std::size_t ReadAhead::memory_used() {
    std::lock_guard lock(mutex_);
    return arena_ ? arena_->used() : 0;
}

}  // namespace fl
