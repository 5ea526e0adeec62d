/* Who is signed in. Shared by reading; only sign-in.js writes it. */

export const session = { key: null, me: null };

export const isHolder = () => session.me !== null && session.me.role === "holder";
