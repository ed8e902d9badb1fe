# Hashes, strings, regular expressions and a sieve.
use strict; use warnings;
$| = 1;
my (%words, $sum);
my $seed = 12345;
for my $turn (1 .. 8) {
    for my $i (1 .. 60000) {
        $seed = ($seed * 1103515245 + 12345) % 2147483648;
        my $word = join '', map { chr(97 + ($seed >> $_) % 26) } (3, 7, 11, 15);
        $words{$word}++;
        $sum += length $1 if $word =~ /([aeiou]+)/;
    }
    my @sieve = (1) x 200_000;
    for (my $i = 2; $i * $i < 200_000; $i++) {
        next unless $sieve[$i];
        for (my $j = $i * $i; $j < 200_000; $j += $i) { $sieve[$j] = 0 }
    }
    my $primes = grep { $_ } @sieve[2 .. $#sieve];
    print "$turn $primes ", scalar(keys %words), " $sum\n";
}
my @top = (sort { $words{$b} <=> $words{$a} || $a cmp $b } keys %words)[0 .. 9];
print "end @top\n";
