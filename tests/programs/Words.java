// Threads, collections, strings and a lot of garbage.
import java.util.*;
import java.util.concurrent.*;

public class Words {
    static long work(int index) {
        Map<String, Integer> counts = new TreeMap<>();
        long state = index * 6364136223846793005L + 1442695040888963407L;
        for (int i = 0; i < 60000; i++) {
            state = state * 6364136223846793005L + 1442695040888963407L;
            String word = Long.toString((state >>> 33) % 5000, 36);
            counts.merge(word, 1, Integer::sum);
        }
        long sum = 17;
        for (Map.Entry<String, Integer> entry : counts.entrySet())
            sum = sum * 31 + entry.getKey().hashCode() * 7L + entry.getValue();
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        long total = 0;
        for (int turn = 0; turn < 14; turn++) {
            List<Future<Long>> results = new ArrayList<>();
            for (int i = 0; i < 12; i++) {
                int index = turn * 100 + i;
                results.add(pool.submit(() -> work(index)));
            }
            for (Future<Long> result : results)
                total = total * 1000003 + result.get();
            System.out.println(turn + " " + Long.toHexString(total));
        }
        pool.shutdown();
        System.out.println("end " + Long.toHexString(total));
    }
}
