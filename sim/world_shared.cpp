// SPDX-License-Identifier: Apache-2.0
// World: shared allocations, and copies through mappings of them.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.hpp"
#include "sim/world.hpp"

namespace orbite::sim {
namespace {

using Access = Checkers::Access;

}  // namespace

// ---- Allocations

void World::draw_allocations(Host& host) {
  host.allocations.clear();
  host.allocations_made = 0;
  host.arena.unshare();
  std::erase_if(shared_pages_, [](const auto& pages) { return pages->file.expired(); });
  if (host.neighbors == nullptr || random.chance(250)) {
    return;
  }
  if (random.chance(400)) {
    share(host, 0, kArenaBytes);
    return;
  }
  std::uint64_t begin = 0;
  while (begin < kArenaBytes) {
    const std::uint64_t end =
        begin + kArenaPage * random.between(1, (kArenaBytes - begin) / kArenaPage);
    if (random.chance(700)) {
      share(host, begin, end);
    }
    begin = end;
  }
}

void World::share(Host& host, std::uint64_t begin, std::uint64_t end) {
  const bool has_more = random.chance(300);  // than the allocation, at either end
  const std::uint64_t file_offset = has_more ? kArenaPage : 0;
  auto file = std::make_shared<const SimPageFile>(end - begin + 2 * file_offset);
  auto pages = std::make_shared<SharedPages>();
  pages->life = host.life();
  pages->begin = begin;
  pages->end = end;
  pages->file_offset = file_offset;
  pages->pages = file.get();
  pages->file = file;
  host.arena.share(begin, end - begin, *file, file_offset);
  host.neighbors->add_pages(file);
  auto allocation = std::make_shared<const memory::SharedAllocation>(memory::SharedAllocation{
      .file = std::move(file),
      .id = ++host.allocations_made,
      .range = *base::ByteRange::make(host.arena.address() + begin, end - begin),
      .file_offset = file_offset,
      .mapping = nullptr});
  trace.note(now_ns(), "%s has shared allocation %llu at %llu+%llu", host.name().c_str(),
             static_cast<unsigned long long>(allocation->id),
             static_cast<unsigned long long>(begin), static_cast<unsigned long long>(end - begin));
  shared_pages_.push_back(pages);
  host.allocations.push_back({std::move(pages), std::move(allocation)});
}

void World::replace_pages(Host& host, std::size_t allocation) {
  const std::shared_ptr<SharedPages> old = host.allocations[allocation].pages;
  old->freed = true;
  host.allocations.erase(host.allocations.begin() + static_cast<std::ptrdiff_t>(allocation));
  share(host, old->begin, old->end);
  host.arena.fill(random, old->begin, old->end - old->begin);
}

std::optional<memory::SharedPart> World::find_shared(const Host& host,
                                                     const base::ByteRange& range) {
  for (const AllocationModel& model : host.allocations) {
    if (model.allocation->range.covers(range)) {
      return memory::SharedPart{model.allocation,
                                model.pages->in_file(range.address() - host.arena.address())};
    }
  }
  return std::nullopt;
}

// ---- What others have of a host

ClaimMap* World::claims_of(const Life& life) {
  Host& host = *hosts[life.host];
  if (life.number == host.life_number) {
    return host.engine != nullptr || !host.allocations.empty() ? &host.claims : nullptr;
  }
  const auto past = host.past_claims.find(life.number);
  return past != host.past_claims.end() ? &past->second : nullptr;
}

void World::put(const Life& life, std::uint64_t offset, std::span<const std::uint8_t> bytes) {
  if (alive(life)) {
    hosts[life.host]->arena.put(offset, bytes);
    return;
  }
  for (const auto& pages : shared_pages_) {
    if (pages->life == life && !pages->freed && pages->contains(offset, bytes.size())) {
      if (const auto file = pages->file.lock()) {
        std::memcpy(file->memory() + pages->in_file(offset), bytes.data(), bytes.size());
      }
    }
  }
}

std::optional<World::Place> World::find_place(Host& host, std::uint64_t address,
                                              std::uint64_t length) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(address);  // NOLINT
  if (host.arena.contains(address, length)) {
    return Place{&host, nullptr, address - host.arena.address(), bytes};
  }
  const auto mapped =
      host.neighbors != nullptr ? host.neighbors->find_mapped(address, length) : std::nullopt;
  if (!mapped) {
    return std::nullopt;
  }
  for (const auto& pages : shared_pages_) {
    const std::uint64_t offset = pages->begin + (mapped->offset - pages->file_offset);
    if (pages->pages == mapped->whole && !pages->file.expired() &&
        mapped->offset >= pages->file_offset && pages->contains(offset, length)) {
      return Place{hosts[pages->life.host].get(), pages.get(), offset, bytes};
    }
  }
  return std::nullopt;
}

void World::touch(const Place& place, std::uint64_t length, Access kind) {
  Host& host = *place.host;
  const Life life = place.pages != nullptr ? place.pages->life : host.life();
  if (place.pages != nullptr && place.pages->freed) {
    checkers.freed(*place.pages, place.offset, length, kind);
    return;
  }
  if (life == host.life() && kind == Access::kLanded) {
    host.arena.accept(place.offset, length);
  }
  const ClaimMap nothing;
  const ClaimMap* const claims = claims_of(life);
  checkers.access({host, life, claims != nullptr ? *claims : nothing, place.bytes, place.offset},
                  place.offset, length, kind);
}

// ---- Copies

void World::on_copy(Host& host, std::uint64_t target, std::uint64_t source, std::uint64_t bytes) {
  const AllocationShelter shelter;
  settle_copy();
  if (host.struck) {
    return;
  }
  if (host.arena.contains(target, bytes) && host.arena.contains(source, bytes)) {
    // Where it lands is seen after the step: the copy is made when this returns.
    on_bytes(host, source, bytes, Access::kRead);
    return;
  }
  std::uint64_t made = 0;
  if (host.neighbors != nullptr) {
    host.neighbors->begin_mapped_copy(bytes, [&](std::uint64_t count) {
      copy_part(host, target, source, count, true);
      made = count;
    });
  }
  if (!host.struck) {
    copy_part(host, target + made, source + made, bytes - made, false);
  }
}

/// `is_made`: here; else the engine does it next.
void World::copy_part(Host& host, std::uint64_t target, std::uint64_t source, std::uint64_t bytes,
                      bool is_made) {
  if (bytes == 0) {
    return;
  }
  const auto from = find_place(host, source, bytes);
  const auto to = find_place(host, target, bytes);
  if (!from || !to) {
    checkers.astray(host, bytes);
    return;
  }
  touch(*from, bytes, Access::kSent);
  if (is_made) {
    // SAFETY: both lie in memory that was found.
    std::memcpy(reinterpret_cast<void*>(target), from->bytes, bytes);  // NOLINT
    touch(*to, bytes, Access::kLanded);
  } else {
    copy_under_way_ = CopyUnderWay{*to, bytes};
  }
}

void World::settle_copy() {
  if (const auto copy = std::exchange(copy_under_way_, std::nullopt)) {
    touch(copy->target, copy->length, Access::kLanded);
  }
}

}  // namespace orbite::sim
