const fs = require('fs');
const git = require('isomorphic-git');
const dir = '/workspace';
const author = { name: 'Agent', email: 'agent@example.test', timestamp: 1700000000, timezoneOffset: 0 };
(async () => {
  for (const c of await git.log({ fs, dir })) console.log(c.oid, JSON.stringify(c.commit.message));
  console.log(JSON.stringify(await git.statusMatrix({ fs, dir })));
  fs.writeFileSync(`${dir}/isomorphic`, 'by isomorphic-git\n');
  await git.add({ fs, dir, filepath: 'isomorphic' });
  console.log(JSON.stringify(await git.statusMatrix({ fs, dir })));
  console.log(await git.commit({ fs, dir, message: 'By isomorphic-git', author }));
  await git.annotatedTag({ fs, dir, ref: 'isomorphic', message: 'By isomorphic-git', tagger: author });
  await git.branch({ fs, dir, ref: 'isomorphic' });
  await git.checkout({ fs, dir, ref: 'isomorphic' });
  await git.checkout({ fs, dir, ref: 'main' });
  console.log(await git.listBranches({ fs, dir }), await git.listTags({ fs, dir }));
  console.log(JSON.stringify(await git.statusMatrix({ fs, dir })));
})().catch((err) => { console.error(err); process.exit(1); });
