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
#include <new>
#include <numeric>
#include <utility>

#include "guard.h"

namespace fl {
namespace {

constexpr std::uint64_t kLongest = 1 << 20;  // neighbours are read together up to this size
constexpr std::uint64_t kLongestRemote = 8 << 20;  // the same for objects, where a request costs far more
constexpr std::uint64_t kGap = 8 << 10;      // what may lie between neighbours: less costs nothing to read along
constexpr std::uint64_t kRemoteUnit = 64;
constexpr std::size_t kKept = 4096;          // mapped pieces of files that nobody holds; a process may have 65,530
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

// What offsets, sizes and memory of direct reads must be multiples of.
std::uint64_t direct_alignment(int fd) {
#ifdef STATX_DIOALIGN
    struct statx found {};
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) == 0 && (found.stx_mask & STATX_DIOALIGN) &&
        found.stx_dio_offset_align && found.stx_dio_mem_align <= Arena::kGrain)
        return std::max<std::uint64_t>({found.stx_dio_offset_align, found.stx_dio_mem_align, 512});
#else
    (void)fd;
#endif
    return 4096;
}

std::size_t up(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

// Memory that segments share; it is free again when the last of them is gone.
struct ReadAhead::Block {
    std::uint8_t* memory;
    std::size_t size;
    std::size_t segments;
};

// A run of bytes of a file that is in memory or on its way there.
struct ReadAhead::Segment : Read {
    File* of = nullptr;
    Block* block = nullptr;
    std::size_t holders = 0;
    std::uint64_t payloads = 0;       // that are in it; 0: nobody knows
    std::uint64_t asked = 0;          // ranges in it that batches asked for
    bool over = false;
    bool idle = false;
    bool kept = false;                // its memory is the page cache's: it stays after its last batch
    Mirror::Holds mirrored{};         // or it is the mirror's, where who comes later will find it
    std::optional<AtomicBits> checked{};  // blocks that were found to be right, counted from where it begins
    Loan* waiter = nullptr;           // the first who waits for it; mostly there is no other
    std::vector<Loan*> more_waiters;
    std::list<Segment*>::iterator place;  // in idle_ or kept_, while it is idle

    std::uint64_t end() const { return offset + size; }
    // Nobody will want it again soon.
    bool used_up() const { return payloads && asked >= payloads; }
};

struct ReadAhead::File {
    explicit File(std::pmr::memory_resource* nodes) : segments(nodes) {}

    FileName name;
    int number = 0;
    int fd = -1;
    int plain = -1;  // for looking whether bytes are cached, where the kernel does not tell strangers by mincore
    bool hopeless = false;
    bool trusted = false;
    std::uint64_t unit = 512;
    std::size_t reading = 0;
    std::uint64_t used = 0;
    std::vector<bool> populated;  // by chunk
    std::unique_ptr<Mirror> mirror;
    std::pmr::map<std::uint64_t, Segment> segments;  // by where they begin; none overlap

    // The segment that reaches behind `at`, or the first after it.
    auto from(std::uint64_t at) {
        auto found = segments.upper_bound(at);
        if (found != segments.begin() && std::prev(found)->second.end() > at) --found;
        return found;
    }

    // Whether all of it is there or on its way.
    bool covers(std::uint64_t begin, std::uint64_t end) {
        for (auto next = from(begin); next != segments.end() && next->second.offset <= begin; ++next) {
            begin = std::max(begin, next->second.end());
            if (begin >= end) return true;
        }
        return false;
    }
};

ReadAhead::Loan::~Loan() {
    if (owner_) owner_->release(*this);
}

// A block within a segment is checked once while that lasts; one that lies in two, each time. So it is but where a cache
// cuts objects into blocks of its own.
void ReadAhead::Loan::check_blocks(const Part& part) {
    const auto& windows = *part.windows;
    const std::uint64_t size = windows.items->block_size();
    const auto last = (part.end - 1 - windows.begin) / size;
    for (auto block = (part.begin - windows.begin) / size; block <= last; ++block) {
        const auto begin = windows.begin + block * size;
        const auto end = std::min(begin + size, windows.begin + windows.items->size());
        std::vector<std::uint8_t> whole;
        for (std::size_t i = part.first; i < part.first + part.count; ++i) {
            auto& segment = *segments_[i];
            const auto from = std::max(begin, segment.offset), to = std::min(end, segment.end());
            if (from >= to) continue;
            const auto* there = segment.to + (from - segment.offset);
            if (from == begin && to == end) {
                const auto bit = (begin - segment.offset) / size;
                if (segment.checked->test(bit)) break;
                windows.items->check_copy(block, Bytes(there, end - begin));
                segment.checked->set(bit);
                break;
            }
            whole.resize(end - begin);
            guarded([&] { std::memcpy(whole.data() + (from - begin), there, to - from); });
        }
        if (!whole.empty()) windows.items->check_copy(block, whole);
    }
}

const std::uint8_t* ReadAhead::Loan::bytes(std::size_t range) {
    const auto& part = parts_[range];
    const auto& wanted = ranges_[range];
    for (std::size_t i = part.first; i < part.first + part.count; ++i) {
        const auto& segment = *segments_[i];
        if (segment.error && owner_->is_remote())
            throw Failure("remote", segment.what.empty() ? "reading was given up" : segment.what);
        if (segment.error == EINVAL || segment.error == EOPNOTSUPP) return nullptr;  // no direct reads here after all
        if (segment.error) throw Failure("io", std::string("reading failed: ") + std::strerror(segment.error));
        // Short reads are left to the mapping, which knows whether the file became shorter.
        if (segment.offset + segment.done < std::min(segment.end(), wanted.begin + wanted.size)) return nullptr;
    }
    if (part.count == 0 && owner_->is_remote()) throw Failure("memory", "no memory to read into");
    if (part.count == 0) return nullptr;
    if (part.windows && part.windows->items) check_blocks(part);
    if (part.count == 1) return segments_[part.first]->to + (part.begin - segments_[part.first]->offset);
    auto whole = std::make_unique_for_overwrite<std::uint8_t[]>(part.end - part.begin);
    for (std::size_t i = part.first; i < part.first + part.count; ++i) {
        const auto& segment = *segments_[i];
        const auto begin = std::max(segment.offset, part.begin);
        const auto end = std::min(segment.end(), part.end);
        if (begin >= end) continue;
        guarded([&] {
            std::memcpy(whole.get() + (begin - part.begin), segment.to + (begin - segment.offset), end - begin);
        });
    }
    joined_.push_back(std::move(whole));
    return joined_.back().get();
}

ReadAhead::ReadAhead(ReadOptions options) : options_(options) {}

ReadAhead::~ReadAhead() { stop(); }

std::size_t ReadAhead::add_file(FileName name) {
    auto file = std::make_unique<File>(&nodes_);
    struct stat status {};
    if (!is_remote() && stat(name.path.c_str(), &status) == 0)
        file->trusted = geteuid() == 0 || status.st_uid == geteuid() || access(name.path.c_str(), W_OK) == 0;
    file->name = std::move(name);
    // Windows are checked when they are read, so they are read.
    if (is_remote() && options_.apart && !file->name.blocks.empty() && !file->name.windows)
        file->mirror = std::make_unique<Mirror>(file->name.blocks, file->name.end, options_.unit);
    if (options_.mode == ReadMode::populate) {
        file->populated.resize((file->name.mapped.size() + kChunk - 1) / kChunk);
        untouched_ += file->populated.size();
    }
    std::lock_guard lock(mutex_);
    file->number = static_cast<int>(files_.size());
    files_.push_back(std::move(file));
    return files_.size() - 1;
}

bool ReadAhead::open(File& file) {
    file.used = ++clock_;
    if (is_remote()) {
        file.unit = std::max<std::uint64_t>(options_.unit, kRemoteUnit);
        return true;
    }
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
            queue_ = make_pread_pool(kPopulating, [](std::span<Read* const> reads) {
                for (const auto* read : reads) delete read;
            });
            return true;
        }
        const auto done = [this](std::span<Read* const> reads) { finished(reads); };
        if (is_remote()) {
            queue_ = remote_.open(done);
            return true;
        }
        arena_ = std::make_unique<Arena>(options_.memory);
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

std::vector<const std::uint8_t*> ReadAhead::hold(const std::vector<Range>& ranges, Mirror::Holds& holds) {
    std::vector<const std::uint8_t*> there(ranges.size());
    if (!is_remote() || !options_.apart) return there;
    std::vector<Mirror*> mirrors(ranges.size());
    {
        std::lock_guard lock(mutex_);
        for (std::size_t i = 0; i < ranges.size(); ++i) mirrors[i] = files_[ranges[i].file]->mirror.get();
    }
    std::uint64_t held = 0;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        const auto& range = ranges[i];
        if (mirrors[i]) there[i] = mirrors[i]->hold(range.begin, range.begin + range.size, holds, counts_.found);
        if (there[i]) held += range.size;
    }
    counts_.asked += held;
    return there;
}

void ReadAhead::look_at_blocks() {
    std::vector<Mirror*> mirrors;
    {
        std::lock_guard lock(mutex_);
        for (const auto& file : files_)
            if (file->mirror) mirrors.push_back(file->mirror.get());
    }
    for (auto* one : mirrors) one->look();
}

// Who wants these bytes from now on finds them in the mirror; so do those who wait, and they have them mapped but once.
void ReadAhead::mirror(Segment& segment) {
    auto* const mirror = segment.of->mirror.get();
    if (!mirror || !segment.stamp || segment.error) return;
    mirror->attach(segment.offset / options_.unit, *segment.stamp);
    if (const auto* there = mirror->hold(segment.offset, segment.end(), segment.mirrored, counts_.found))
        segment.to = const_cast<std::uint8_t*>(there);
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
    for (std::size_t i = 0; i < loan->ranges_.size(); ++i) {
        auto& range = loan->ranges_[i];
        auto& part = loan->parts_[i];
        part.begin = range.begin, part.end = range.begin + range.size;
        const auto& windows = files_[range.file]->name.windows;
        if (!is_remote() || !windows || part.begin < windows->begin || part.end > windows->end) continue;
        part.windows = &*windows;
        const auto around = windows->checkable({part.begin, part.end});
        range.begin = around.begin, range.size = around.end - around.begin;
    }
    loan->order_.resize(loan->ranges_.size());
    std::iota(loan->order_.begin(), loan->order_.end(), std::size_t{0});
    std::sort(loan->order_.begin(), loan->order_.end(), [&](std::size_t a, std::size_t b) {
        return std::pair(loan->ranges_[a].file, loan->ranges_[a].begin) <
               std::pair(loan->ranges_[b].file, loan->ranges_[b].begin);
    });
    ++loans_;
    return loan;
}

std::uint64_t ReadAhead::expect() {
    std::lock_guard lock(mutex_);
    expected_.insert(++turns_);
    return turns_;
}

void ReadAhead::pass(std::uint64_t turn) {
    Todo todo;
    {
        std::lock_guard lock(mutex_);
        if (expected_.erase(turn) && !waiting_.empty()) serve(todo);
    }
    run(todo);
}

bool ReadAhead::may_drop(const Loan& loan) const { return expected_.empty() || loan.turn_ < *expected_.begin(); }

void ReadAhead::ask(Loan& loan, std::uint64_t turn) {
    Todo todo;
    {
        std::lock_guard lock(mutex_);
        loan.asked_at_ = now();
        loan.turn_ = turn;
        expected_.erase(turn);
        if (open_queue()) {
            const auto before = std::find_if(waiting_.rbegin(), waiting_.rend(),
                                             [&](const Loan* one) { return one->turn_ < turn; });
            waiting_.insert(before.base(), &loan);
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

void ReadAhead::hand_over(Loan& loan) {
    Todo todo;
    {
        std::lock_guard lock(mutex_);
        if (!std::exchange(loan.urgent_, false) || !loan.served_) return;
        --running_;
        if (!waiting_.empty()) serve(todo);
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
                if ((urgent ? running_ : holding_) || !may_drop(loan)) break;
                if (!is_remote() || !try_serve(loan, todo, true)) give_up(loan, todo);
            }
            next = waiting_.erase(next);
        }
    }
}

bool ReadAhead::try_serve(Loan& loan, Todo& todo, bool beyond) {
    auto order = loan.order_;
    std::vector<Segment*> pins;
    std::vector<std::size_t> covers(order.size());
    auto pieces = missing_pieces(loan, order, covers, pins);
    const bool found = find_memory(pieces, beyond, may_drop(loan));
    if (found) {
        todo.reads.reserve(todo.reads.size() + pieces.size());
        for (auto& piece : pieces) {
            auto& segment = piece.file->segments[piece.begin];
            segment.file = is_remote() ? piece.file->number : piece.file->fd;
            segment.offset = piece.begin;
            segment.size = piece.end - piece.begin;
            segment.to = piece.memory;
            segment.of = piece.file;
            segment.block = piece.block;
            const auto* span = piece.file->name.span_at(piece.begin);
            if (span && span->begin == piece.begin && span->end == piece.end) segment.payloads = span->payloads;
            if (const auto& windows = piece.file->name.windows; windows && is_remote()) {
                segment.payloads = windows->within({piece.begin, piece.end});
                if (windows->items) segment.checked.emplace(segment.size / windows->items->block_size() + 1);
            }
            piece.segment = &segment;
            todo.reads.push_back(&segment);
            counts_.bytes += segment.size;
        }
        counts_.reads += pieces.size();
        loan.segments_.reserve(order.size());
        for (std::size_t i = 0; i < order.size(); ++i) {
            auto& part = loan.parts_[order[i]];
            part.first = loan.segments_.size(), part.count = 0;
            counts_.asked += part.end - part.begin;
            if (covers[i])
                attach(loan, order[i], *pieces[covers[i] - 1].segment);
            else
                link(loan, order[i]);
        }
        loan.served_ = true;
        ++holding_;
        running_ += loan.urgent_;
        if (loan.missing_ == 0) complete(loan, todo);
    }
    for (auto* segment : pins) let_go(*segment);
    return found;
}

const FileName::Span* FileName::span_at(std::uint64_t at) const {
    const auto behind = std::upper_bound(spans.begin(), spans.end(), at,
                                         [](std::uint64_t place, const Span& span) { return place < span.begin; });
    return behind == spans.begin() ? nullptr : &*std::prev(behind);
}

// What is read for the sake of a range. What windows of several units have in common may be gone when only some of them are
// still to come: it is not read again for these. A cache has units of its own, which are read whole.
std::pair<std::uint64_t, std::uint64_t> ReadAhead::widened(File& file, const Range& wanted, const Loan::Part& part) const {
    const auto unit = file.unit, last = wanted.begin + wanted.size;
    if (part.windows && !options_.apart) {
        if (file.covers(wanted.begin, last)) return {wanted.begin, last};
        const auto all = part.windows->together({part.begin, part.end}, options_.unit);
        return {all.begin, all.end};
    }
    if (const auto* span = file.name.span_at(wanted.begin); span && last <= span->end) return {span->begin, span->end};
    const auto end = (last + unit - 1) / unit * unit;
    return {wanted.begin / unit * unit, is_remote() ? std::min(end, std::max(file.name.end, last)) : end};
}

// The runs of bytes that nobody has yet; what is there already is held by `pins` meanwhile. `order` loses the ranges
// that have to do without. A range within one piece has its number, counted from 1, in `covers`.
std::vector<ReadAhead::Piece> ReadAhead::missing_pieces(Loan& loan, std::vector<std::size_t>& order,
                                                        std::vector<std::size_t>& covers, std::vector<Segment*>& pins) {
    std::vector<Piece> pieces;
    pieces.reserve(order.size());
    std::size_t total = 0;
    const auto longest = is_remote() ? kLongestRemote : kLongest;
    const auto add = [&](File& file, std::uint64_t begin, std::uint64_t end) {
        if (!pieces.empty() && !options_.apart) {
            auto& last = pieces.back();
            if (last.file == &file && begin >= last.begin && begin <= last.end + kGap && end - last.begin <= longest) {
                const auto between = file.from(last.end);
                const bool free = between == file.segments.end() || between->second.offset >= begin;
                if (begin <= last.end || free) {
                    total += std::max(end, last.end) - last.end;
                    last.end = std::max(end, last.end);
                    return;
                }
            }
        }
        pieces.push_back({&file, begin, end});
        ++file.reading;  // so that it stays open
        total += end - begin;
    };
    std::size_t kept = 0;
    for (const auto range : order) {
        const auto& wanted = loan.ranges_[range];
        File& file = *files_[wanted.file];
        if (!wanted.size) continue;
        const auto unit = file.fd >= 0 || open(file) ? file.unit : 0;
        if (!unit || (!is_remote() && total + wanted.size + 2 * unit > arena_->capacity() / 2)) {
            ++counts_.given_up;
            continue;
        }
        file.used = ++clock_;
        auto [at, end] = widened(file, wanted, loan.parts_[range]);
        if (!pieces.empty() && pieces.back().file == &file) at = std::max(at, pieces.back().end);
        for (auto next = file.from(at); at < end; ++next) {
            const bool more = next != file.segments.end() && next->second.offset < end;
            const auto until = more ? next->second.offset : end;
            while (at < until) {
                const auto stop = options_.apart ? std::min(until, at / unit * unit + unit) : until;
                add(file, at, stop);
                at = stop;
            }
            if (!more) break;
            hold(next->second);
            pins.push_back(&next->second);
            at = next->second.end();
        }
        const bool one = !pieces.empty() && pieces.back().file == &file && pieces.back().begin <= wanted.begin &&
                         wanted.begin + wanted.size <= pieces.back().end;
        covers[kept] = one ? pieces.size() : 0;
        order[kept++] = range;
    }
    order.resize(kept);
    return pieces;
}

// One block for all pieces, where bytes are let go with the batch they were read for; else, or where none is large
// enough, a block each.
bool ReadAhead::find_memory(std::vector<Piece>& pieces, bool beyond, bool may_drop) {
    if (is_remote()) return find_budget(pieces, beyond, may_drop);
    if (!options_.unit && pieces.size() > 1) {
        std::size_t total = 0;
        for (const auto& piece : pieces) total = up(total, piece.file->unit) + (piece.end - piece.begin);
        if (auto* memory = arena_->take(total)) {
            auto* block = new Block{memory, total, pieces.size()};
            std::size_t at = 0;
            for (auto& piece : pieces) {
                at = up(at, piece.file->unit);
                piece.block = block;
                piece.memory = memory + at;
                at += piece.end - piece.begin;
            }
            return true;
        }
    }
    for (auto& piece : pieces) {
        const auto size = piece.end - piece.begin;
        while (!(piece.memory = arena_->take(size))) {
            if (may_drop && drop_idle()) continue;
            for (auto& taken : pieces) --taken.file->reading;
            for (auto& taken : pieces) {
                if (taken.memory) give_back(taken.block);
            }
            return false;
        }
        piece.block = new Block{piece.memory, size, 1};
    }
    return true;
}

// Leave to fetch all pieces. A batch larger than all the memory for reads is made all the same, since there is nowhere
// else to take it from. Nothing is dropped in vain.
bool ReadAhead::find_budget(std::vector<Piece>& pieces, bool beyond, bool may_drop) {
    std::size_t total = 0, room = options_.memory;
    for (const auto& piece : pieces) total += piece.end - piece.begin;
    if (!beyond && lent_ + total > room) {
        for (const auto* idle : idle_) room += may_drop && idle->over ? idle->block->size : 0;
        if (lent_ + total > room) {
            for (auto& piece : pieces) --piece.file->reading;
            return false;
        }
    }
    while (lent_ + total > options_.memory && drop_idle()) continue;
    for (auto& piece : pieces) piece.block = new Block{nullptr, piece.end - piece.begin, 1};
    lent_ += total;
    return true;
}

// What is still on its way can't be dropped, though nobody holds it. What a batch that waits for memory will want goes
// last: it would be read a second time. Of several such, that goes which is wanted last.
bool ReadAhead::drop_idle() {
    Segment* chosen = nullptr;
    std::size_t latest = 0;
    for (auto* const idle : idle_) {
        if (!idle->over) continue;
        const auto turn = turn_of(*idle);
        if (turn == waiting_.size()) {
            chosen = idle;
            break;
        }
        if (!chosen || turn > latest) chosen = idle, latest = turn;
    }
    if (!chosen) return false;
    drop(*chosen);
    return true;
}

// The place among those who wait for memory of the first who wants something in it; behind the last where nobody does.
std::size_t ReadAhead::turn_of(const Segment& segment) const {
    const auto file = static_cast<std::size_t>(segment.of->number);
    std::size_t turn = 0;
    for (const auto* loan : waiting_) {
        const auto& ranges = loan->ranges_;
        // Of those that begin before its end, the last: where ranges lie within others, a longer one may be missed.
        const auto behind = std::lower_bound(
            loan->order_.begin(), loan->order_.end(), std::pair(file, segment.end()),
            [&](std::size_t range, const auto& place) {
                return std::pair(ranges[range].file, ranges[range].begin) < place;
            });
        if (behind != loan->order_.begin()) {
            const auto& last = ranges[*std::prev(behind)];
            if (last.file == file && last.begin + last.size > segment.offset) return turn;
        }
        ++turn;
    }
    return turn;
}

void ReadAhead::give_back(Block* block) {
    if (is_remote())
        lent_ -= block->size;
    else
        arena_->give_back(block->memory, block->size);
    delete block;
}

void ReadAhead::hold(Segment& segment) {
    ++segment.holders;
    if (std::exchange(segment.idle, false)) (segment.kept ? kept_ : idle_).erase(segment.place);
}

void ReadAhead::attach(Loan& loan, std::size_t range, Segment& segment) {
    hold(segment);
    ++segment.asked;
    if (!segment.over) {
        const auto* last = segment.more_waiters.empty() ? segment.waiter : segment.more_waiters.back();
        if (last != &loan) {
            if (segment.waiter)
                segment.more_waiters.push_back(&loan);
            else
                segment.waiter = &loan;
            ++loan.missing_;
        }
    }
    loan.segments_.push_back(&segment);
    ++loan.parts_[range].count;
}

// Notes which segments hold a range; by now all of it is covered.
void ReadAhead::link(Loan& loan, std::size_t range) {
    const auto& wanted = loan.ranges_[range];
    File& file = *files_[wanted.file];
    for (auto next = file.from(wanted.begin);
         next != file.segments.end() && next->second.offset < wanted.begin + wanted.size; ++next)
        attach(loan, range, next->second);
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

void ReadAhead::finished(std::span<Read* const> reads) {
    Todo todo;
    for (auto* read : reads) mirror(static_cast<Segment&>(*read));
    {
        std::lock_guard lock(mutex_);
        bool freed = false;
        for (auto* read : reads) {
            auto& segment = static_cast<Segment&>(*read);
            segment.over = true;
            --segment.of->reading;
            if (segment.error == EINVAL || segment.error == EOPNOTSUPP) segment.of->hopeless = true;
            const auto tell = [&](Loan* loan) {
                if (--loan->missing_ == 0) complete(*loan, todo);
            };
            if (segment.waiter) tell(std::exchange(segment.waiter, nullptr));
            for (auto* loan : segment.more_waiters) tell(loan);
            segment.more_waiters = {};
            if (segment.stamp) {
                segment.kept = true;  // and counts no more
                lent_ -= std::exchange(segment.block->size, 0);
                freed = true;
                if (segment.idle) kept_.splice(kept_.end(), idle_, segment.place);
            }
            if (segment.holders) continue;
            freed = true;
            if (segment.error || segment.mirrored || !(options_.unit || segment.kept)) drop(segment);
        }
        if (freed && !waiting_.empty()) serve(todo);
    }
    run(todo);
}

void ReadAhead::release(Loan& loan) {
    Todo todo;
    {
        std::lock_guard lock(mutex_);
        waiting_.remove(&loan);
        for (auto* segment : loan.segments_) {
            if (segment->waiter == &loan) segment->waiter = nullptr;
            std::erase(segment->more_waiters, &loan);
            let_go(*segment);
        }
        holding_ -= loan.served_;
        running_ -= loan.served_ && loan.urgent_;
        if (!waiting_.empty()) serve(todo);
        if (--loans_ == 0) gone_.notify_all();
    }
    run(todo);
}

// Whole units are kept for batches to come, until the memory is needed. Of others, what nobody asked for ahead is
// unlikely to be asked for soon; and memory that is used again at once is still in the CPU's cache. What was fetched and
// used up goes, too: its memory is the next one's, where new memory would cost as much as fetching.
void ReadAhead::let_go(Segment& segment) {
    if (--segment.holders) return;
    const bool wanted = options_.unit && !(is_remote() && segment.used_up());
    if (segment.over && (segment.error || segment.mirrored || !(wanted || segment.kept))) return drop(segment);
    segment.idle = true;
    auto& list = segment.kept ? kept_ : idle_;
    segment.place = list.insert(list.end(), &segment);
    if (kept_.size() > kKept) drop(*kept_.front());
}

void ReadAhead::drop(Segment& segment) {
    if (segment.idle) (segment.kept ? kept_ : idle_).erase(segment.place);
    auto* const block = segment.block;
    if (--block->segments == 0) give_back(block);
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
    for (auto& file : files_) {
        while (!file->segments.empty()) drop(file->segments.begin()->second);
        close(*file);
        if (file->mirror) file->mirror->rest();
    }
    arena_.reset();
    streak_ = 0;
}

std::size_t ReadAhead::memory_used() {
    std::lock_guard lock(mutex_);
    return arena_ ? arena_->used() : lent_;
}

}  // namespace fl
