/** Home and workers: swapped in place when something in the store changed; idle otherwise. */

import { Live, refreshRegions, throttled } from "../lib/live.js";

const swap = throttled(() => refreshRegions(), 1000);
new Live("/changes", { change: () => swap() });
