#!/bin/sh
# Checks a model's certificate, and the ledger that it stands in, with openssl (3.0 or later), jq and a POSIX shell alone:
# no line of dpserve runs. In a folder with
#   bundle/           what `dpserve model export NAME --out bundle` wrote
#   ledger/           what `dpserve ledger export --out ledger` wrote
#   trust.json        the pinned keys, which came by another way than the two above: everything rests on them
#   kept.checkpoint   of your last audit, if there was one
#   consistency.json  if you were given one: `dpserve ledger consistency --seen kept.checkpoint --json`
#   tiles/            if you were given them: `dpserve ledger tiles --out tiles`
# `sh audit.sh` stops with an error at the first thing that is wrong, and else ends with "All of it holds."
set -eu

# 0. Whose keys
# The one of the pinned issuer keys that the certificate names.

jq -e '.format == "dpserve-trust/v2"' trust.json
jq -j --slurpfile certificate bundle/model.onnx.dsse.json \
  '.issuers[] | select(.keyid == $certificate[0].signatures[0].keyid) | .pem' trust.json > issuer.pem
test -s issuer.pem

# 1. The certificate is signed by the issuer
# It is a DSSE envelope around an in-toto statement. What is signed is its pre-authentication encoding (PAE):
# `DSSEv1`, then type and payload, each with its length in front.

jq -j '.payload | @base64d' bundle/model.onnx.dsse.json > statement.json
kind=$(jq -r .payloadType bundle/model.onnx.dsse.json)
test "$kind" = application/vnd.in-toto+json
printf 'DSSEv1 %d %s %d ' ${#kind} "$kind" "$(wc -c < statement.json)" | cat - statement.json > pae
jq -r '.signatures[0].sig' bundle/model.onnx.dsse.json | base64 -d > certificate.signature
openssl pkeyutl -verify -rawin -pubin -inkey issuer.pem -sigfile certificate.signature -in pae

# 2. It speaks of this very file
# Read what it says: `relation` and `unit` are what is protected, `notCovered` is what is not.

model=$(openssl dgst -sha256 -r bundle/model.onnx | cut -d ' ' -f 1)
jq -e --arg model "$model" '.subject == [{name: .subject[0].name, digest: {sha256: $model}}]' statement.json
jq '.predicate | {claim, dataset, randomness, notCovered}' statement.json

# 3. Epsilon follows from what was done
# `mechanisms` lists every release, with its event (what it costs) and how often it was made; docs/privacy/prices.md
# has the formulas of each event, and of the theorem that `claim.bound` names, with their proofs. The program
# restricts the adaptive adversary to a grid, so it finds slightly less than the truth; the other figures are exact.
# Certificates round up: what is stated may be larger than what is computed, never smaller.

cat > epsilon.jq <<'END'
def exp($x): $x | exp; def expm1($x): $x | expm1; def log1p($x): $x | log1p;
def least($x; $y): if $x < $y then $x else $y end;
def log_of_sum($x; $y): ([$x, $y] | max) as $top | $top + (exp($x - $top) + exp($y - $top) | log);
def bounded_range($e; $a):
  (expm1(-$a * $e) / expm1(-$e)) as $A
  | ([0, least($e; (($a - 1) * $A / ($a * ($A * exp(-$e) - exp(-$a * $e))) | log))] | max) as $t
  | (expm1($e - $t) / expm1($e)) as $p
  | least($a * $e * $e / 8; log_of_sum(($p | log) + $a * $t; (1 - $p | log) + $a * ($t - $e)) / ($a - 1));
def pure($e; $a):
  least(least($e; $a * $e * $e / 2);
    (($a - 1) * $e + log1p(exp((1 - 2 * $a) * $e)) - log1p(exp(-$e))) / ($a - 1));
def renyi($a):
  if .type == "bounded-range" then bounded_range(.epsilon | tonumber; $a)
  elif .type == "pure-dp" then pure(.epsilon | tonumber; $a)
  elif .type == "gaussian" then $a / (2 * pow(.noise_multiplier | tonumber; 2))
  else error("an event that this page does not know") end;
.predicate.claim as $claim | ($claim.delta | tonumber) as $delta
| if $claim.bound == "pure" then [.predicate.mechanisms[] | .count * (.event.epsilon | tonumber)] | add
  elif $claim.bound == "renyi" then ($claim.order | tonumber) as $a
    | ([.predicate.mechanisms[] | .count * (.event | renyi($a))] | add)
      + (1 - 1 / $a | log) - (($delta | log) + ($a | log)) / ($a - 1)
  else empty end
END
cat > epsilon.awk <<'END'
function up(x, n) { n = int(x); return n < x ? n + 1 : n }
function tail(x, n, f, term) {
  if (x < 0) return 1 - tail(-x)
  if (x > 3) { for (f = x; n < 200; n++) f = x + (200 - n) / f; return exp(-x * x / 2) / 2.506628274631 / f }
  for (f = term = x; term > 1e-17 * f; f += term) { n++; term *= x * x / (2 * n + 1) }
  return 0.5 - f * exp(-x * x / 2) / 2.506628274631
}
function gaussian(low, high, middle, mu) {
  mu = sqrt(mu2)
  for (high = 700; high - low > 1e-10; ) {
    middle = (low + high) / 2
    if (tail(middle / mu - mu / 2) - exp(middle) * tail(middle / mu + mu / 2) > delta) low = middle; else high = middle
  }
  return low
}
function value(i) {
  if (i >= 0) return i > size ? 0 : v[i]
  return 1 - exp(i * h) + (-i > size ? 0 : exp(i * h) * v[-i])
}
function release(n, bounded, i, t, x, best, p) {
  if (n == 0) return
  for (i = -n; i <= size + n; i++) w[i] = value(i)
  for (t = 0; t <= n; t++) p[t] = (exp(n * h) - exp(t * h)) / (exp(n * h) - 1)
  for (i = 0; i <= size; i++) {
    for (best = t = 0; t <= n; t++) {
      x = bounded ? p[t] * w[i - t] + (1 - p[t]) * w[i - t + n] : (w[i - n] + exp(-n * h) * w[i + n]) / (1 + exp(-n * h))
      if (x > best) best = x
      if (!bounded) break
    }
    v[i] = best
  }
}
function adaptive(fine, work, r, k, i) {
  for (fine = 256; fine >= 2 && (fine == 256 || work > 2000000); fine /= 2) {
    h = e[main] / up(fine * e[main] / sqrt(spread / runs))
    size = up((sum < 6 * sqrt(spread) ? sum : 6 * sqrt(spread)) / h)
    for (work = r = 0; r < NR; ) { r++; work += size * count[r] * int(e[r] / h) }
  }
  for (r = NR; r > 0; r--) for (k = 0; k < count[r]; k++) release(int(e[r] / h + 1e-9), kind[r] == "bounded-range")
  for (i = 0; v[i] > delta; i++) if (i == size) return sum
  return i ? (i - 1) * h + log(1 + (v[i - 1] - delta) / (v[i - 1] - v[i]) * (exp(h) - 1)) : 0
}
$1 == "gaussian" { mu2 += $3 / ($2 * $2 - 4 / ($4 * $4)) }
$1 != "gaussian" {
  kind[NR] = $1; e[NR] = $2; count[NR] = $3; runs += $3; sum += $2 * $3
  part = $3 * $2 * $2 * ($1 == "bounded-range" ? 1 : 4)
  spread += part
  if (part > most) { most = part; main = NR }
}
END { printf "%.9f\n", bound == "gaussian" ? gaussian() : adaptive() }
END
jq -f epsilon.jq statement.json > computed
if [ ! -s computed ]; then
  jq -r '.predicate.mechanisms[]
    | [.event.type, .event.epsilon // .event.noise_multiplier, .count, .sensitivity] | join(" ")' statement.json \
    | awk -v bound="$(jq -r .predicate.claim.bound statement.json)" -v delta="$(jq -r .predicate.claim.delta statement.json)" \
      -f epsilon.awk > computed
fi
jq --slurpfile computed computed '(.predicate.claim.epsilon | tonumber) as $stated
  | {bound: .predicate.claim.bound, computed: $computed[0], $stated, holds: ($computed[0] <= $stated + 1e-9)}' \
  statement.json > epsilon.json
cat epsilon.json
jq -e .holds epsilon.json

# 4. The log's checkpoint is signed
# A checkpoint is three lines (name of the log, number of entries, root hash), an empty line, and signatures. A
# signature is base64 of four bytes that hint at the key, and 64 bytes of Ed25519 over the three lines. Which of the
# log's keys must have signed depends on the number of entries.

verify_checkpoint() {
  sed '/^$/,$d' "$1" > checkpoint.text
  origin=$(jq -r .origin trust.json)
  test "$(sed -n 1p checkpoint.text)" = "$origin"
  jq -e --argjson size "$(sed -n 2p checkpoint.text)" \
    '[.logs[] | select(.from_size <= $size and (.until_size == null or $size < .until_size))][-1]' trust.json > log.json
  jq -r .pem log.json > log.pem
  rm -f checkpoint.signature
  for line in $(awk -v name="$origin" 'seen && $2 == name { print $3 } /^$/ { seen = 1 }' "$1"); do
    hint=$(echo "$line" | base64 -d | head -c 4 | od -An -tx1 | tr -d ' \n')
    if [ "$hint" = "$(jq -r '.vkey | split("+")[1]' log.json)" ]; then
      echo "$line" | base64 -d | tail -c +5 > checkpoint.signature
    fi
  done
  openssl pkeyutl -verify -rawin -pubin -inkey log.pem -sigfile checkpoint.signature -in checkpoint.text
}
verify_checkpoint ledger/checkpoint

# 5. The certificate is in the log
# The proof names an entry, gives its bytes and the hashes on its way to the root (RFC 6962: a leaf is hashed behind a
# zero byte, two subtrees behind a one byte), and ends with a checkpoint.

proof=bundle/model.onnx.tlog-proof
sed '1,/^$/d' $proof > proof.checkpoint
verify_checkpoint proof.checkpoint
sed -n 's/^extra //p' $proof | base64 -d > entry
fn=$(sed -n 's/^index //p' $proof)
sn=$(($(sed -n 2p proof.checkpoint) - 1))
printf '\0' | cat - entry | openssl dgst -sha256 -binary > hash
for sibling in $(sed '1,/^index /d; /^$/,$d' $proof); do
  test $sn -gt 0
  echo "$sibling" | base64 -d > sibling
  if [ $((fn % 2)) = 1 ] || [ "$fn" = "$sn" ]; then
    printf '\1' | cat - sibling hash | openssl dgst -sha256 -binary > parent
    while [ $((fn % 2)) = 0 ] && [ "$fn" != 0 ]; do fn=$((fn / 2)) sn=$((sn / 2)); done
  else
    printf '\1' | cat - hash sibling | openssl dgst -sha256 -binary > parent
  fi
  mv parent hash
  fn=$((fn / 2)) sn=$((sn / 2))
done
test $sn = 0
test "$(base64 < hash)" = "$(sed -n 3p proof.checkpoint)"

# The entry must bind this statement, this model and the reservation that the statement names. Who steals the issuer's key
# alone fails here: there is no such entry for what he signs.

statement=$(openssl dgst -sha256 -r statement.json | cut -d ' ' -f 1)
reservation=$(jq .predicate.ledger.reservation statement.json)
jq -e --arg statement "$statement" --arg model "$model" --argjson reservation "$reservation" \
  '.statement == $statement and .model == $model and .reservation == $reservation' entry

# It is of type `issued`. Of a model that was edited after its release it is `derived`, and names the entry of the model that
# the edits began from.

jq -e --slurpfile statement statement.json '($statement[0].predicate.public.supersedes // []) as $chain
  | if $chain == [] then .type == "issued" else .type == "derived" and .base == $chain[-1].entry end' entry

# Keys speak for a range of entries, and a certificate can be revoked: its own, or one that the model came from. Both are
# judged by the number of the entry.

issued=$(sed -n 's/^index //p' $proof)
chain=$(jq -c --argjson issued "$issued" '[.predicate.public.supersedes[]?.entry, $issued]' statement.json)
jq -e --rawfile issuer issuer.pem --argjson issued "$issued" --argjson chain "$chain" \
  'any(.issuers[]; .pem == $issuer and .from_index <= $issued and (.until_index == null or $issued < .until_index))
    and .revoked - $chain == .revoked' trust.json
jq -e -s --argjson chain "$chain" 'all(.[]; .type != "revoked" or ([.issued] - $chain != []))' ledger/entries.jsonl

# 6. The plan was reserved before a row was read
# The reservation is in the log under its number. Its leaf hash is the one in the statement, and its plan is what the
# certificate lists.

sed -n "$((reservation + 1))p" ledger/entries.jsonl | tr -d '\n' > reserved
printf '\0' | cat - reserved | openssl dgst -sha256 -r | cut -d ' ' -f 1 > leaf
test "$(cat leaf)" = "$(jq -r .predicate.ledger.leaf statement.json)"
jq -e --slurpfile statement statement.json \
  '.type == "reserved" and .plan == ($statement[0].predicate.mechanisms | map(del(.library)))' reserved

# 7. The exported entries are those that were signed
# Hash all of them again. Neighbours are joined level by level; one without a neighbour moves up as it is. The root
# must be that of the export's checkpoint, and the first entries must give the root of the proof's older checkpoint.

root_of_the_first() {
  rm -rf tree && mkdir tree && n=0
  head -n "$1" "${2:-ledger/entries.jsonl}" > first
  while IFS= read -r line; do
    printf '\0%s' "$line" | openssl dgst -sha256 -binary > tree/$n
    n=$((n + 1))
  done < first
  test "$n" = "$1"
  while [ $n -gt 1 ]; do
    i=0
    while [ $((2 * i + 1)) -lt $n ]; do
      printf '\1' | cat - tree/$((2 * i)) tree/$((2 * i + 1)) | openssl dgst -sha256 -binary > tree/parent
      mv tree/parent tree/$i
      i=$((i + 1))
    done
    if [ $((n % 2)) = 1 ]; then mv tree/$((n - 1)) tree/$i; i=$((i + 1)); fi
    n=$i
  done
  base64 < tree/0
}
verify_checkpoint ledger/checkpoint
test "$(grep -c '' ledger/entries.jsonl)" = "$(sed -n 2p ledger/checkpoint)"
test "$(root_of_the_first "$(sed -n 2p ledger/checkpoint)")" = "$(sed -n 3p ledger/checkpoint)"
test "$(root_of_the_first "$(sed -n 2p proof.checkpoint)")" = "$(sed -n 3p proof.checkpoint)"

# 8. The ledger continues what you saw before
# Who holds the keys can write another ledger and sign it anew. The only defence is a checkpoint in other hands: keep
# the checkpoint of every audit, and give it to others. Without the entries a consistency proof does the same (RFC
# 9162, 2.1.4.2): its hashes lead from the old root to both the old and the new one.

if [ -f kept.checkpoint ]; then
  verify_checkpoint kept.checkpoint
  test "$(root_of_the_first "$(sed -n 2p kept.checkpoint)")" = "$(sed -n 3p kept.checkpoint)"
fi
if [ -f consistency.json ]; then
  m=$(sed -n 2p kept.checkpoint) n=$(sed -n 2p ledger/checkpoint)
  jq -e --argjson m "$m" --argjson n "$n" '.from == $m and .to == $n and 0 < $m and $m < $n' consistency.json
  jq -r '.hashes[]' consistency.json > hashes
  if [ $((m & (m - 1))) = 0 ]; then sed -n 3p kept.checkpoint | cat - hashes > steps; else cp hashes steps; fi
  fn=$((m - 1)) sn=$((n - 1))
  while [ $((fn % 2)) = 1 ]; do fn=$((fn / 2)) sn=$((sn / 2)); done
  head -n 1 steps | base64 -d > old
  cp old new
  for step in $(tail -n +2 steps); do
    test $sn -gt 0
    echo "$step" | base64 -d > step
    if [ $((fn % 2)) = 1 ] || [ "$fn" = "$sn" ]; then
      printf '\1' | cat - step old | openssl dgst -sha256 -binary > parent && mv parent old
      printf '\1' | cat - step new | openssl dgst -sha256 -binary > parent && mv parent new
      while [ $((fn % 2)) = 0 ] && [ "$fn" != 0 ]; do fn=$((fn / 2)) sn=$((sn / 2)); done
    else
      printf '\1' | cat - new step | openssl dgst -sha256 -binary > parent && mv parent new
    fi
    fn=$((fn / 2)) sn=$((sn / 2))
  done
  test $sn = 0
  test "$(base64 < old)" = "$(sed -n 3p kept.checkpoint)"
  test "$(base64 < new)" = "$(sed -n 3p ledger/checkpoint)"
fi

# 9. The tiles hold the same ledger
# `tiles/tile/entries/N` holds up to 256 entries, each behind its length in two bytes; `tiles/tile/0/N` their hashes.
# The last of each may be partial, and has its width behind `.p/`. N is written in groups of three digits.

tile() {
  path=$(printf '%03d' $(($2 % 1000))) rest=$(($2 / 1000))
  while [ $rest -gt 0 ]; do path=$(printf 'x%03d' $((rest % 1000)))/$path rest=$((rest / 1000)); done
  if [ "$3" -lt 256 ]; then path=$path.p/$3; fi
  echo "tiles/tile/$1/$path"
}
if [ -d tiles ]; then
  verify_checkpoint tiles/checkpoint
  size=$(sed -n 2p tiles/checkpoint) number=0
  : > tiled
  while [ $((number * 256)) -lt "$size" ]; do
    width=$((size - number * 256)) at=0
    if [ $width -gt 256 ]; then width=256; fi
    bundle=$(tile entries $number $width)
    : > hashes
    while [ $at -lt "$(wc -c < "$bundle")" ]; do
      length=0
      for byte in $(od -An -tu1 -j $at -N 2 "$bundle"); do length=$((length * 256 + byte)); done
      tail -c +$((at + 3)) "$bundle" | head -c $length > entry
      printf '\0' | cat - entry | openssl dgst -sha256 -binary >> hashes
      echo | cat entry - >> tiled
      at=$((at + 2 + length))
    done
    cmp hashes "$(tile 0 $number $width)"
    number=$((number + 1))
  done
  test "$(root_of_the_first "$size" tiled)" = "$(sed -n 3p tiles/checkpoint)"
  most=$(sed -n 2p ledger/checkpoint)
  if [ "$size" -lt "$most" ]; then most=$size; fi
  head -n "$most" tiled > tiled.first
  head -n "$most" ledger/entries.jsonl | cmp - tiled.first
fi

# 10. The budgets hold
# A price counts for each account of its family, part and blocks (`window`), and for the account of one person, unless
# it was released before it had started. Units that are kept aside have an account of their own, and each block of a
# dataset that grows has one (the first, where an entry names none). A reservation may be admitted as long as the pure
# sum is then at most the account's epsilon, or one Rényi order at most its cap (the weights of the orders share
# delta: docs/privacy/filter.md). One job may take the whole of untouched accounts (`whole`), which are closed then.
# Analysts with a quota have that share of every figure. What was released elsewhere (`charged`) counts for every
# account of both parts. The program runs every admission again, compares the sums that entries state (`after`), and
# lists the entries that are wrong. It takes prices, claims and filters as they are written, and asks nothing of the
# order of entries but that a job is started or released once.

cat > budgets.jq <<'END'
# Sums are whole numbers of 1e-9. An account is of one family, one block, one part; or of one person over all blocks.
def nano: tonumber * 1000000000 | round;
def nothing: {pure: 0, unbounded: 0, rdp: {}};
def figures: {pure: (.pure | nano), unbounded, rdp: (.rdp | map_values(nano))};
def plus($price; $sign):
  .pure += $sign * $price.pure | .unbounded += $sign * $price.unbounded
  | .rdp = reduce ($price.rdp | keys[]) as $order (.rdp; .[$order] = (.[$order] // 0) + $sign * $price.rdp[$order]);
def within($total; $share):
  . as $used | (.unbounded == 0 and .pure <= ([1, ($total.epsilon * $share | floor)] | max))
    or any($total.filter[]; ($used.rdp[.order] // 0) <= (.cap * $share | floor));
def at($total): {pure, unbounded, rdp: (. as $used | [$total.filter[].order | {(.): ($used.rdp[.] // 0)}] | add // {})};
def total:
  {epsilon: (.budget.epsilon | nano), delta: (.budget.delta | tonumber), filter: [.filter[] | {order, cap: (.cap | nano)}],
    outside: (.budget.outside // "0" | tonumber)};
def found($dataset; $key; $from; $its):  # an account for each part; `from`: whose sums are carried on, if there was one
  .datasets[$dataset] as {$families, $parts} | reduce $parts[] as $part (.;
    (.accounts[$from + $part] // {used: nothing, waiting: nothing, by: {}, whole: null}) as $before
    | .accounts[$key + $part] = $before + {family: $families[0], person: ($key | endswith("/person"))} + $its
    | if $before.total.epsilon != $its.total.epsilon then .accounts[$key + $part].whole = null else . end);
def window_of($words):
  if $words == "all" then [.dropped + 1, .last]
  elif $words | startswith("last:") then [([.dropped, .last - ($words[5:] | tonumber)] | max) + 1, .last]
  else $words | split("-") | map(tonumber) | [.[0], .[-1]] end;
def accounts_of($job):
  .datasets[$job.dataset] as $dataset | (if $job.part == "holdout" then "/holdout" else "" end) as $part
  | ($job.window // [1, 1]) as $blocks
  | [$dataset.families[] as $family | range($blocks[0]; $blocks[1] + 1) | $family + "/\(.)" + $part]
    + [$dataset.person // empty | . + $part];
def refused($entry; $quota):  # of one account, why it does not admit the job
  (.total) as $total | ($entry.whole == true and (.person | not)) as $whole
  | if .whole then "is closed by the job of entry \(.whole.job)"
    elif $whole and (.used.pure > 0 or .used.unbounded > 0 or any(.used.rdp[]; . > 0))
      then "is taken whole, and was touched"
    elif $whole and (($entry.claim.epsilon | nano) > $total.epsilon or ($entry.claim.delta | tonumber) > $total.delta)
      then "has less than the job that takes it whole"
    elif $whole and $quota != null and $quota != 1 then "is more than the quota of \($entry.by)"
    elif $whole then empty
    elif .used | plus($entry.figures; 1) | within($total; 1) | not then "is overspent"
    elif $quota != null and (.by[$entry.by] // nothing | plus($entry.figures; 1) | within($total; $quota) | not)
      then "is spent beyond the quota of \($entry.by)"
    else empty end;
def charge($entry; $sign):
  .used |= plus($entry.figures; $sign) | .waiting |= plus($entry.figures; $sign)
  | .by[$entry.by] |= (. // nothing | plus($entry.figures; $sign))
  | .whole = (if $entry.whole == true and (.person | not) and $sign > 0
      then {job: $entry.index, epsilon: ($entry.claim.epsilon | nano)} else null end);
def wrong($entry; $why): .wrong += [{entry: $entry.index, $why}];
def says($entry; $keys):  # what the entry says of the sums after it
  if $entry.after == null then . else
    . as $all
    | ([$entry.after[] | . as $line | (.family, .also[]?)
        | {key: "\(.) \($line.part) \($line.person)", value: ($line.used | figures)}] | from_entries) as $said
    | if all($keys[]; . as $key | (if endswith("/holdout") then "holdout" else null end) as $part
        | $all.accounts[$key] | (if .person then true else null end) as $person
        | $said["\(.seq) \($part) \($person)"] == (.total as $total | .used | at($total)))
      then $all else $all | wrong($entry; "its sums are not what the entries before it give") end end;
def reserved($entry):
  accounts_of($entry) as $keys | .datasets[$entry.dataset] as $dataset | . as $all
  | if $entry.blocks != null and $entry.window != ($dataset | window_of($entry.blocks))
    then wrong($entry; "its window is not what its words mean") else . end
  | if $entry.blocks == null and ($dataset.last > 1 or $entry.window != null)
    then wrong($entry; "it names no blocks of a dataset that grew") else . end
  | reduce $keys[] as $key (.;
      ($all.accounts[$key] // null) as $its
      | if $its == null then wrong($entry; "there is no account \($key)") else
          $all.quotas[$its.family] as $quotas
          | ($quotas[$entry.by] // $quotas["*"]) as $quota
          | reduce ($its | refused($entry; $quota)) as $why (.; wrong($entry; "\($key) \($why)"))
          | .accounts[$key] |= charge($entry; 1) end)
  | .jobs["\($entry.index)"] = $entry + {state: "reserved"} | says($entry; $keys);
def started($entry):
  .jobs["\($entry.reservation)"] as $job
  | if $job.state != "reserved" then wrong($entry; "its job does not wait") else accounts_of($job) as $keys
      | .jobs["\($entry.reservation)"].state = "started"
      | reduce $keys[] as $key (.;
          .accounts[$key].waiting |= plus($job.figures; -1) | .accounts[$key] as $its
          | if (if $its.whole then $its.whole.epsilon <= $its.total.epsilon
                else ($its.judged | not) or ($its.used | plus($its.waiting; -1) | within($its.total; 1)) end)
            then . else wrong($entry; "\($key), lowered since, is overspent") end)
      | says($entry; $keys) end;
def released($entry):
  .jobs["\($entry.reservation)"] as $job
  | if $job.state != "reserved" then wrong($entry; "its job does not wait, and nothing is given back") else accounts_of($job) as $keys
      | .jobs["\($entry.reservation)"].state = "released"
      | reduce $keys[] as $key (.; .accounts[$key] |= charge($job; -1)) | says($entry; $keys) end;
def charged($entry):  # what was released elsewhere: every account of both parts, with nothing that waits
  (.datasets[$entry.dataset] // {}) as $dataset
  | [($dataset.parts // [""])[] as $part | accounts_of($entry + {part: $part[1:]})[]] as $keys
  | if $entry.blocks != null and $entry.window != ($dataset | window_of($entry.blocks))
      or ($entry.blocks == null and ($dataset.last > 1 or $entry.window != null))
    then wrong($entry; "its window is not what its words mean") else . end
  | reduce ($entry.delta // empty | tonumber) as $delta (.;
      reduce ($dataset.families // [])[] as $family (.; .deltas[$family] = (.deltas[$family] // 0) + $delta))
  | reduce $keys[] as $key (.; .accounts[$key].used |= plus($entry.figures; 1) | .accounts[$key] as $its
    | if (.deltas[$its.family] // 0) > $its.total.outside * (1 + 1e-12)
      then wrong($entry; "\($key) has set less delta apart than was spent elsewhere")
      elif $its.whole then wrong($entry; "\($key) is closed by the job of entry \($its.whole.job)")
      elif $its.used | within($its.total; 1) | not then wrong($entry; "\($key) is overspent") else . end)
  | says($entry; $keys);
def withdrawn($entry):  # a registration that nothing was spent on: its accounts end with it
  .datasets[$entry.dataset] as $dataset
  | if any(.jobs[]; .dataset == $entry.dataset and .state != "released")
    then wrong($entry; "a job on it was not given back") else . end
  | if $dataset.charged then wrong($entry; "what was released elsewhere was charged on it") else . end
  | if any(.datasets[]; . != $dataset and .entry > $dataset.entry and any(.families[]; IN($dataset.families[])))
    then wrong($entry; "another dataset of its family stands") else . end
  | del(.datasets[$entry.dataset])
  | if $dataset.founds then .accounts |= with_entries(select(.value.family != $dataset.families[0])) else . end;
reduce (to_entries[] | {index: .key} + .value | if .price then .figures = (.price | figures) else . end) as $entry
  ({accounts: {}, datasets: {}, quotas: {}, jobs: {}, wrong: []};
  ($entry | {seq: .index, judged: false} + if .filter then {total: total} else {} end) as $its
  | if $entry.type == "dataset-registered" then
    ["", (if $entry.holdout then "/holdout" else empty end)] as $parts
    | .datasets[$entry.dataset] = {families: [$entry.family], $parts, last: 1, dropped: 0, entry: $entry.index, founds: true}
    | found($entry.dataset; $entry.family + "/1"; ""; $its)
  elif $entry.type == "person-total" then ($entry.family + "/person") as $key
    | (if $entry.carried == null then "" elif .datasets[$entry.dataset].person then $key
       else $entry.family + "/1" end) as $from
    | found($entry.dataset; $key; $from; $its + {judged: ($entry.carried != null)})
    | .datasets[$entry.dataset].person = $key
    | [.datasets[$entry.dataset].parts[] as $part | .accounts[$key + $part] | .total as $total | .used | at($total)] as $sums
    | if $entry.carried == null or [$entry.carried[].used | figures] == $sums
      then . else wrong($entry; "it carries on other sums than were used") end
  elif $entry.type == "dataset-joined" then .accounts as $accounts  # with the parts of the family that it joins
    | ["", (if any($entry.families[]; $accounts[. + "/1/holdout"]) then "/holdout" else empty end)] as $parts
    | .datasets[$entry.dataset] = {families: $entry.families, $parts, last: 1, dropped: 0, entry: $entry.index}
  elif $entry.type == "dataset-withdrawn" then withdrawn($entry)
  elif $entry.type == "dataset-appended" then .accounts[.datasets[$entry.dataset].families[0] + "/1"] as $first
    | .datasets[$entry.dataset].last = $entry.block
    | found($entry.dataset; $first.family + "/\($entry.block)"; ""; $its + ($first | {total, judged}))
  elif $entry.type == "blocks-dropped" then .datasets[$entry.dataset].dropped = $entry.upto
  elif $entry.type == "quota-set" then .quotas[$entry.family][$entry.analyst] = ($entry.share | tonumber)
  elif $entry.type == "budget-changed" then
    .accounts |= map_values(if .family == $entry.family and (.person | not)
      then .total = $its.total | .judged = (.judged or $entry.largest != null) else . end)
  elif $entry.type == "reserved" then reserved($entry)
  elif $entry.type == "started" then started($entry)
  elif $entry.type == "released" then released($entry)
  elif $entry.type == "charged" then .datasets[$entry.dataset].charged = true | charged($entry)
  else . end)
| {accounts: (.accounts | map_values({used, total})), wrong, holds: (.accounts != {} and .wrong == [])}
END
jq -s -f budgets.jq ledger/entries.jsonl > budgets.json
cat budgets.json
jq -e .holds budgets.json
echo "All of it holds."
