#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Imports within r2ccl/ go downward only, and pure packages stay pure. channel/ carries out what protocol/ decides: it states no duration, compares no
times, names no phase of a migration, names a path's state only where it sets it, and asks nothing of what a decision rests on (FACT): it hands that to
protocol/, in a sight or as an argument. Whatever else it makes a condition of, channel_conditions.csv has for each function how many conditions there are,
and why none of them is a decision of the protocol (WHY): a condition that comes anew is noticed whatever it is about. path/ states no duration either, but
for those of its threads (nic_workers). Reads every source of the core, and shows first that it notices lines that break these rules.

    imports_test.py R2CCL_FOLDER"""
import collections
import csv
import pathlib
import re
import sys

# From the top; packages of one line may include each other.
ORDER = [('plugin', 'nccl'), ('collective',), ('service',), ('channel',), ('path',), ('protocol',), ('balance', 'health', 'control'), ('topology',), ('verbs',), ('trace',), ('base',)]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
# No verbs, no sockets, no clock, no threads. Plain data may be described anywhere.
PURE = ('protocol',)
IMPURE = re.compile(r'#include\s+(<(infiniband/|thread>|mutex>|condition_variable>|time\.h>|unistd\.h>|sys/|sodium|chrono>)'
                    r'|"r2ccl/(verbs/(?!port_address\.h)|control/(?!endpoint\.h)|trace/|base/(clock|log)\.h|service/|channel/|path/|topology/))')
# Carries out; how long what may take is decided in protocol/, where tests can look at it.
CARRIES_OUT = ('channel',)
STATES_NO_DURATION = ('channel', 'path')
# Between two looks at an event a thread may sleep: POLL.
DURATION = re.compile(r'constexpr\s+u?int64_t\s+k\w*Ns\b|chrono::(?:nano|micro|milli)?(?:seconds|minutes|hours)\(\d')
POLL = 'wait_for(lock, std::chrono::milliseconds(50), '
# clang-format has spaces around these operators, and none around the brackets of templates.
CLOCK = r'(?:\w*tick\.(?:now|alive)|now_ns\(\))'
COMPARISON = re.compile(CLOCK + r'[^;,&|?:]* [<>]=? |(?: [<>]=? )[^;,&|?:]*' + CLOCK)
# Who asks for those decides by them. MigrationEnd::phase() is handed on as it is.
QUESTION = re.compile(r'\bPhase::k|(?<!state = )\bPathState::k|\bphase\(\)\s*[=!]=|switch \(.*phase\(\)\)')
# What is known of a channel, of its peer, and of NICs.
FACT = (r'(?:\w+(?:\(\))?(?:\.|->))*(?:(?:greeted_|sender_|refused_with_eio)\b|(?:resilient|setting_up|is_closing|peer_(?:has_)?closed|told|lasts)\(\)|'
        r'(?:nic_(?:down|unusable|left)|device_gone|is_in_vain|is_up|usable|barred|is_for|home_may_work|in_demand)[\[(](?:[^()\[\]]|[(][^()]*[)])*[)\]])')
# An operand of a condition. An argument, and the right side of an assignment to a sight, is none.
ASKED = re.compile(r'(?:\b(?:if|while|switch) \(|!|&& |\|\| |\? )' + FACT + '|' + FACT + r' (?:&&|\|\||\?|==|!=) ')
SIGHT = re.compile(r'\bseen\.\w+ = ')
# For people, not for the protocol: which words a message has.
TEXT = re.compile(FACT + r' \? "')
# … by another name.
RENAMED = re.compile(r'\bbool \w+ = .*' + FACT)
# Posting and testing are direct.
DIRECT = ('if (activity_.empty_test() && context_.resilient()) look_at_silence();',)


def states_duration(line):
    return bool(DURATION.search(line.replace(POLL, '')))


def asks(line):
    if SIGHT.search(line) or line.strip() in DIRECT:
        return False
    code = TEXT.sub('words', line.split('//')[0])
    return bool(ASKED.search(code) or RENAMED.search(code))


def statements(text):
    """(number of its first line, one line) of each statement, so that nothing hides at a line's end."""
    first, held = 0, ''
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split('//')[0].rstrip()
        first, held = (first, held + ' ' + code.strip()) if held else (number, line if line.lstrip().startswith('#') else code)
        if not code.strip() or code.endswith((';', '{', '}', ':')) or code.lstrip().startswith('#'):
            if held.strip():
                yield first, held
            held = ''
    if held.strip():
        yield first, held


# Conditions: a loop over numbers or objects is none.
CONDITION = re.compile(r'\b(?:if|while|switch) \(|(?<= )&& |\|\| | \? |\b(?:any|all|none|count)_of\(|\bcount_if\(|\.(?:any|first)\(')
FUNCTION = re.compile(r'(?: {2})?(?![ }]|(?:if|for|while|switch|return|else|case)\b)[^=(]*?((?:\w+::)?~?\w+)\([^{};]*\)(?: const| override| noexcept| final)*(?: :.*)? \{')
WHY = {
    'direct': 'posting, testing and polling are direct',
    'object': 'is the object there, and who has it just now',
    'outcome': 'what a call has returned',
    'sight': 'collects what protocol/ or balance/ asks for',
    'act': 'carries out what a function of protocol/ or balance/ has decided',
    'status': 'that a channel has failed, or is closed, is for good',
    'words': 'what the log, an error or the trace says',
    'meter': 'what the meters of the balance count',
}


def conditions(text):
    """How many conditions each function has."""
    counts, function = collections.Counter(), ''
    for _, statement in statements(text):
        if begins := FUNCTION.match(statement):
            function = begins.group(1)
        if found := len(CONDITION.findall(statement)):
            counts[function] += found
    return counts


def listed():
    with open(pathlib.Path(__file__).with_name('channel_conditions.csv'), newline='') as file:
        return {(row['file'], row['function']): row for row in csv.DictReader(file)}


def wrong_conditions(file, text, rows):
    """`rows`: of this file's functions."""
    counts = conditions(text)
    for function, count in counts.items():
        row = rows.get(function)
        if not row or int(row['conditions']) != count:
            yield (f'{file}: {function} has {count} conditions, and channel_conditions.csv knows {row["conditions"] if row else "none"}: what is decided belongs '
                   'into protocol/')
        elif unknown := [why for why in row['why'].split() if why not in WHY]:
            yield f'channel_conditions.csv: {function}: {", ".join(unknown)} is no reason'
    for function in rows.keys() - counts.keys():
        yield f'{file}: {function} has no conditions, and channel_conditions.csv has a row for it'


def decides(line):
    """What a line of a package that carries out does that is not its part; None."""
    if states_duration(line):
        return 'states no duration'
    if asks(line):
        return 'decides nothing by what is known of the channel'
    if COMPARISON.search(line):
        return 'compares no times'
    if QUESTION.search(line):
        return 'decides nothing by a phase or the state of a path'
    return None


DECIDE = (
    'constexpr uint64_t kLongNs = 5;', 'until = now + std::chrono::seconds(5);', 'if (tick.now - outage_.began() > bound) {',
    'else if (tick.now - lane.since > kRest && rest_lane(lane))', 'seen.late = tick.now > created_ + bound;', 'if (since + 5 < tick.alive) return;',
    'if (now_ns() - since >= bound) {', 'return path.probe_age(tick.alive) <= limit() ? a : b;', 'if (end_.phase() == Phase::kRunning) {',
    'switch (end_.phase()) {', 'if (path.state == PathState::kActive) {', 'if (context_.resilient() && (sender_ || greeted_)) {', 'if (!greeted_) end_outage();',
    'return greeted_ && !closing_.peer_closed();', 'const bool wanted = !half->unwanted && !closing_.peer_closed();', 'if (c.context_.nic_down[nic]) continue;',
    'return context_.usable(l) && !peer_.nic_down(r);', 'if (home && !failback_.is_up()) return false;', 'if (outage_.lasts()) step_outage(tick);',
    'sender_ ? choose(tick) : wait();', 'const bool is_down = context_.nic_down[n];', 'if (greeted_) send(kFail, "x");', 'if (opening_.is_for(Purpose::kStandby)) ++standbys;')
CARRY_OUT = (
    'while (!done.wait_for(lock, std::chrono::milliseconds(50), [this] { return over_; })) {', 'path.state = PathState::kActive;', 'seen.phase = end_.phase();',
    'seen.migrates_for_ns = tick.now - started_;', 'static_cast<unsigned long long>((now_ns() - since) / 1000));', 'if (!advance(Status::kMigrating)) return;',
    'seen.failed = status() == Status::kFailed && greeted_;', 'if (is_break(context_.resilient(), sender_, greeted_)) return connection_broke(tick);',
    'return rail::may_work(see_rail(home_nic_, peer_.home_nic(), tick.now));', 'if (opening_.is_for(Purpose::kSpread)) seen.moving = opening_.local();',
    'sender_ ? "the receiver\'s fence is enough"', 'hello.strict_ack = context_.strict_ack();', 'outage_.broke(host, tick, {silent, turned_away, seen.closing});',
    'rails_.failed(local, remote, tick.now + OpeningRetries::kRailNs);', 'if (failback_.due(path->id(), tick.now)) {')


SPLIT = """  if (path &&
      greeted_)
    drop(path);
  R2_INFO("it is %s", sender_ ? "one"
                              : "the other");
"""


CONDITIONS = """void Channel::one(int nic,
                  bool up) {
  if (nic > 2 && up)
    for (int i = 0; i < 3; ++i) say(i);
  say(up ? 1 : 2);
}
Channel::Channel(int nic) : nic_(nic) {
  const bool any = std::any_of(all.begin(), all.end(), [](int it) { return it > 2; });
}
class Two {
  bool is_one() const { return a || b; }
  void plain() { say(1); }
};
"""


def check_self():
    assert conditions(CONDITIONS) == {'Channel::one': 3, 'Channel::Channel': 1, 'is_one': 1}, conditions(CONDITIONS)
    row = {'conditions': '3', 'why': 'direct'}
    rows = {'Channel::one': row, 'Channel::Channel': {**row, 'conditions': '1'}, 'is_one': {**row, 'conditions': '1'}}
    assert not list(wrong_conditions('x.cc', CONDITIONS, rows))
    for wrong in ({'is_one': {**row, 'conditions': '2'}}, {'is_one': {**row, 'conditions': '1', 'why': 'because'}}, {'gone': row}):
        assert list(wrong_conditions('x.cc', CONDITIONS, {**rows, **wrong})), wrong
    assert list(wrong_conditions('x.cc', CONDITIONS, {})), 'not listed'
    assert [bool(decides(statement)) for _, statement in statements(SPLIT)] == [True, False]
    for line in DECIDE:
        assert decides(line), f'not noticed: {line}'
    for line in CARRY_OUT:
        assert not decides(line), f'{decides(line)}: {line}'


def wrong_lines(folder):
    known = listed()
    for path in sorted(folder.rglob('*')):
        if path.suffix not in ('.h', '.cc'):
            continue
        parts = path.relative_to(folder).parts
        package = parts[0]
        if package not in RANK or 'testing' in parts or path.stem.endswith('_test'):  # tests include what they need
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r'#include\s+"r2ccl/(\w+)/', line)
            if found and found.group(1) in RANK and found.group(1) != package and RANK[found.group(1)] < RANK[package]:
                yield f'{path}:{number}: {package}/ may not include {found.group(1)}/'
            if package in PURE and IMPURE.match(line):
                yield f'{path}:{number}: {package}/ is pure: {line}'
        if package in CARRIES_OUT:
            rows = {function: row for (file, function), row in known.items() if file == path.name}
            yield from wrong_conditions(path.name, path.read_text(), rows)
        for number, statement in statements(path.read_text()) if package in STATES_NO_DURATION else ():
            if package in CARRIES_OUT and (why := decides(statement)):
                yield f'{path}:{number}: {package}/ {why}, protocol/ does: {statement.strip()}'
            elif states_duration(statement):
                yield f'{path}:{number}: {package}/ states no duration, protocol/ does: {statement.strip()}'


def main():
    check_self()
    folder = pathlib.Path(sys.argv[1])
    for package in RANK:
        if package != 'nccl' and not (folder / package).is_dir():
            sys.exit(f'{folder} has no {package}/')
    wrong = list(wrong_lines(folder))
    print('\n'.join(wrong) or 'imports go downward')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
